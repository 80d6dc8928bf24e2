"""DDTREE for SGLang 0.5.17: DFlash's draft block, verified as a tree of its likeliest prefixes.

SGLang loads `plugin.register` through the entry point `ddtree` of the group `sglang.srt.plugins`,
in each of its processes; no file of SGLang is edited. In the order of one decode step:

- `options`: budget, top-k and trace, from flags or the environment; imports nothing of SGLang.
- `algorithm`: what SGLang's scheduler, pools and runners ask about the algorithm; start-up checks.
- `candidates`: the drafter's top-k log-probabilities, in torch and in Triton.
- `tree`: the batch of trees grown from them, in torch and in Triton.
- `worker`: the step itself: draft, tree, verify, keep the accepted path.
- `reserve`: cache slots that a step may write.
- `tally`: the `ddtree_*` fields of `meta_info`.
- `hooks`: the places of SGLang that have no seam for any of this.
- `launch`: the command `ddtree-sglang`.

Shape letters in every module: R requests, L depths, K candidates a depth, B budget,
N = B + 1 nodes with the root, V vocabulary, b = L + 1 draft block, H hidden size.
"""
