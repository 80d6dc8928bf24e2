"""Stock SGLang 0.5.17 on a machine without a GPU: a checking device, never a benchmark.

`sglang==0.5.17` as installed by pip does not import without CUDA's driver library, and its CPU
engine needs kernels that only the CPU build of `sgl_kernel` has. This package closes those gaps
from outside; no file of SGLang is edited.

- `kernels`: the seven `sgl_kernel` operations that plain, NGRAM and DFLASH decoding call, in torch.
- `attention`: attention of a draft block, which the `torch_native` backend lacks.
- `plugin`: the changes to SGLang's behaviour, through SGLang's own hook registry.
- `site/`: what is put on PYTHONPATH besides `src`: the stand-in package `sgl_kernel`, and the
  metadata by which SGLang finds the plug-in. Without that folder this package does nothing.

Needed until SGLang publishes a CPU wheel of `sgl_kernel` and lets DFLASH run on the CPU.
Usage and limits: docs/sglang-cpu.md.
"""
