"""The whole configuration of a run."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from ddtree_bench.config.base import Section, fault_at
from ddtree_bench.config.protocol import Analysis, Protocol
from ddtree_bench.config.server import Server
from ddtree_bench.config.suggest import nearest
from ddtree_bench.config.workload import CLASSES, Workload

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=64)]
"""Names become folder names and Snakemake wildcards."""


class Config(Section):
    """One run: which servers, asked what, measured how."""

    run: Name = Field(description="Names `results/{run}/` and `report/{run}.pdf`.")
    title: str = Field("Speculative decoding compared", description="Title of the report.")
    servers: dict[Name, Server] = Field(min_length=1, description="The servers to compare.")
    workloads: dict[Name, Workload] = Field(min_length=1, description="What they are asked.")
    sample: Annotated[int, Field(ge=1, strict=True)] | Literal["full"] | None = Field(
        None,
        description="Replaces the `sample` of every workload but those of class `original`: "
        "so many prompts, or `full` for all. For the command line: `--config sample=full`.",
    )
    protocol: Protocol = Field(Protocol(), description="How they are measured.")
    analysis: Analysis = Field(Analysis(), description="How the numbers are judged.")

    @model_validator(mode="before")
    @classmethod
    def _sample_replaces(cls, data: Any) -> Any:  # noqa: ANN401 - not validated yet
        """Write `sample` into the workloads; one that is none is a fault of its own key."""
        if not isinstance(data, dict) or not isinstance(data.get("workloads"), dict):
            return data
        sample = data.get("sample")
        if sample != "full" and not (type(sample) is int and sample >= 1):
            return data
        chosen = {"sample": "all" if sample == "full" else sample}
        workloads = {
            name: {**workload, **chosen}
            if isinstance(workload, dict) and workload.get("class") != "original"
            else workload
            for name, workload in data["workloads"].items()
        }
        return {**data, "workloads": workloads}

    @model_validator(mode="after")
    def _engines_can(self) -> Self:
        unable = [name for name, server in self.servers.items() if server.engine == "reference"]
        for name, workload in self.workloads.items() if unable else ():
            for key, asked, what in (
                ("constrained", workload.constrained, "constrain its decoding"),
                ("tool_route", workload.tool_route == "openai", "parse tool calls"),
            ):
                if asked:
                    raise fault_at(
                        ("workloads", name, key),
                        f"server `{unable[0]}` (engine reference) cannot {what}; "
                        "leave one of the two out",
                    )
        return self

    @model_validator(mode="after")
    def _planned_pairs_are_real(self) -> Self:
        planned: set[frozenset[str]] = set()
        for name, references in self.analysis.against.items():
            key = ("analysis", "against", name)
            for server in (name, *references):
                if server not in self.servers:
                    hint = nearest(server, self.servers)
                    raise fault_at(key, f"there is no server `{server}`{hint}")
            for reference in references:
                pair = frozenset((name, reference))
                if len(pair) == 1:
                    raise fault_at(key, f"`{name}` cannot be compared with itself")
                if pair in planned:
                    raise fault_at(key, f"`{name}` and `{reference}` are planned twice")
                planned.add(pair)
        return self

    @model_validator(mode="after")
    def _references_exist(self) -> Self:
        baseline = self.analysis.baseline
        if baseline not in self.servers:
            hint = nearest(baseline, self.servers)
            raise fault_at(("analysis", "baseline"), f"there is no server `{baseline}`{hint}")
        for name, workload in self.workloads.items():
            late = [r for r in workload.rounds or () if r > self.protocol.rounds]
            if late:
                raise fault_at(
                    ("workloads", name, "rounds"),
                    f"round {late[0]} does not happen, "
                    f"`protocol` has {self.protocol.rounds} rounds",
                )
        return self

    @model_validator(mode="after")
    def _classes_share_their_rounds(self) -> Self:
        """Of a class only prompts that all its rounds have are compared: the others would drop out.

        Not so classes that enter no comparison, and open loops.
        """
        first: dict[str, str] = {}
        for name, workload in self.workloads.items():
            if workload.counted_class not in CLASSES or workload.arrivals_per_s:
                continue
            other = first.setdefault(workload.counted_class, name)
            if self._rounds_of(name) != self._rounds_of(other):
                raise fault_at(
                    ("workloads", name, "rounds"),
                    f"`{other}` of the same class `{workload.counted_class}` is measured in other "
                    f"rounds ({_listed(self._rounds_of(other))}, not "
                    f"{_listed(self._rounds_of(name))}), and no prompt is in all of them; give "
                    "both the same `rounds`, or lower `sample` to save time",
                )
        return self

    def _rounds_of(self, workload: str) -> frozenset[int]:
        every = range(1, self.protocol.rounds + 1)
        return frozenset(self.workloads[workload].rounds or every)


def _listed(rounds: frozenset[int]) -> str:
    return ", ".join(map(str, sorted(rounds)))
