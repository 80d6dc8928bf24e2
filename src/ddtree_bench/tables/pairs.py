"""Who is compared with whom, and which of these comparisons are planned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddtree_bench.config import Config, Server

BASELINE, EQUAL_WIDTH, CHAIN, PLANNED = "baseline", "equal width", "chain", "planned"


@dataclass(frozen=True, slots=True)
class Pair:
    """A candidate, what it is compared with, and why."""

    candidate: str
    reference: str
    relation: str
    tested: bool = True
    """False: shown beside the planned comparisons, without a test."""

    @property
    def servers(self) -> tuple[str, str]:
        """Candidate and reference."""
        return self.candidate, self.reference


def pairs_of(config: Config) -> Iterator[Pair]:
    """Every server against the baseline, then against its other opponents.

    What `analysis.against` names of a server takes the place of the automatic opponents; the
    baseline is then tested only if it is among them.
    """
    baseline = config.analysis.baseline
    planned = config.analysis.against
    for name in config.servers:
        if name != baseline:
            tested = name not in planned or baseline in planned[name]
            yield Pair(name, baseline, BASELINE, tested)
    for name, server in config.servers.items():
        for other in planned.get(name, _chains(server, config)):
            if other != baseline:
                yield Pair(name, other, _relation(server, config.servers[other]))


def _chains(server: Server, config: Config) -> Iterator[str]:
    """The automatic opponents: of a tree, every chain of its own model."""
    for other, chain in config.servers.items():
        if _is_tree_and_chain(server, chain) and server.model == chain.model:
            yield other


def _relation(candidate: Server, reference: Server) -> str:
    if not _is_tree_and_chain(candidate, reference):
        return PLANNED
    # other flags, overlap scheduling among them, would be a second factor
    sides = [(side.verify_width, side.args, side.model) for side in (candidate, reference)]
    return EQUAL_WIDTH if sides[0] == sides[1] else CHAIN


def _is_tree_and_chain(candidate: Server, reference: Server) -> bool:
    return (candidate.algorithm, reference.algorithm) == ("DDTREE", "DFLASH")
