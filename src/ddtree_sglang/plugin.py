"""The entry point that SGLang calls in each of its processes, before it reads arguments."""

# SGLang is not installed where types are checked.
# mypy: disable-error-code="import-not-found"
from __future__ import annotations

from ddtree_sglang.options import ALGORITHM
from ddtree_sglang.stock import Arguments


def register() -> None:
    """Register the algorithm and hand the hooks to SGLang."""
    # here, not above: this module is imported to find `register`, also where SGLang is not
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    from ddtree_sglang.algorithm import DDTreeAlgorithm
    from ddtree_sglang.hooks import install

    announce = SpeculativeAlgorithm.register(
        ALGORITHM, supports_overlap=True, spec_class=DDTreeAlgorithm
    )
    announce(worker_class)
    install()


def worker_class(server_args: Arguments) -> type:
    """The class of the worker; imported when a scheduler asks, since it needs the kernels."""
    from ddtree_sglang.worker import DDTreeWorker

    return DDTreeWorker
