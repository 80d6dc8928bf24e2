"""Triton's interpreter for the kernels' tests where there is no GPU."""

import os
from importlib.util import find_spec


def _has_gpu() -> bool:
    if find_spec("torch") is None:
        return False
    import torch  # most parts are tested without it

    return torch.cuda.is_available()


if not _has_gpu():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
