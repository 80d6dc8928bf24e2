"""The whole configuration of a run."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from ddtree_bench.config.base import Section, fault_at
from ddtree_bench.config.protocol import Analysis, Protocol
from ddtree_bench.config.server import Server
from ddtree_bench.config.suggest import nearest
from ddtree_bench.config.workload import Workload

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=64)]
"""Names become folder names and Snakemake wildcards."""


class Config(Section):
    """One run: which servers, asked what, measured how."""

    run: Name = Field(description="Names `results/{run}/` and `report/{run}.pdf`.")
    title: str = Field("Speculative decoding compared", description="Title of the report.")
    servers: dict[Name, Server] = Field(min_length=1, description="The servers to compare.")
    workloads: dict[Name, Workload] = Field(min_length=1, description="What they are asked.")
    protocol: Protocol = Field(Protocol(), description="How they are measured.")
    analysis: Analysis = Field(Analysis(), description="How the numbers are judged.")

    @model_validator(mode="after")
    def _references_exist(self) -> Self:
        baseline = self.analysis.baseline
        if baseline not in self.servers:
            hint = nearest(baseline, self.servers)
            raise fault_at(("analysis", "baseline"), f"there is no server `{baseline}`{hint}")
        for name, workload in self.workloads.items():
            late = [r for r in workload.rounds or () if r > self.protocol.launches]
            if late:
                raise fault_at(
                    ("workloads", name, "rounds"),
                    f"round {late[0]} does not happen, "
                    f"`protocol.launches` is {self.protocol.launches}",
                )
        return self
