r"""Put recorded replies into a prompt file, for workloads with `history: recorded`.

    python -m ddtree_bench.workloads.history \
        results/ddtree/sessions/ar/launch-1/cells.jsonl multiturn \
        workflow/resources/prompts/multiturn.jsonl > multiturn-recorded.jsonl

Every server then goes on with these replies instead of its own, so that all render the same prompts
also after answers that differ. Prompts without an answer to every turn are left out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from ddtree_bench.config.suggest import nearest
from ddtree_bench.errors import BenchError
from ddtree_bench.hashing import canonical_json
from ddtree_bench.prompts import Prompt, load_prompts
from ddtree_bench.records import CellId, RequestRecord
from ddtree_bench.session.store import read_cells


def with_replies(
    prompts: Sequence[Prompt], requests: Iterable[RequestRecord]
) -> tuple[Prompt, ...]:
    """The prompts that were answered in every turn, with the answers of the first such pass."""
    passes: dict[str, dict[CellId, list[str]]] = {}
    for request in requests:
        said = passes.setdefault(request.prompt_id, {}).setdefault(request.cell, [])
        if request.status.ok and request.turn == len(said):
            said.append(request.text)
    answered = []
    for prompt in prompts:
        for replies in passes.get(prompt.id, {}).values():
            if len(replies) >= len(prompt.turns):
                answered.append(prompt.model_copy(update={"replies": tuple(replies)}))
                break
    return tuple(answered)


def _requests(cells: Path, workload: str) -> list[RequestRecord]:
    if not cells.is_file():
        raise BenchError("there is no such file", where=str(cells))
    measured = list(read_cells(cells))
    names = {each.cell.cell.workload for each in measured}
    if workload not in names:
        raise BenchError(
            f'no cell of workload "{workload}"{nearest(workload, names)}', where=str(cells)
        )
    return [
        request
        for each in measured
        if each.cell.cell.workload == workload
        for request in each.requests
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the prompt file; 2 if a file is missing or faulty, or nothing was answered."""
    parser = argparse.ArgumentParser(
        prog="python -m ddtree_bench.workloads.history",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cells", type=Path, help="cells.jsonl of the session to take replies from")
    parser.add_argument("workload", help="workload of that session")
    parser.add_argument("prompts", type=Path, help="the prompt file that it asked")
    given = parser.parse_args(arguments)
    try:
        prompts = load_prompts(given.prompts)
        answered = with_replies(prompts, _requests(given.cells, given.workload))
        if not answered:
            raise BenchError("no prompt was answered in every turn", where=str(given.cells))
    except BenchError as error:
        print(error, file=sys.stderr)
        return 2
    for prompt in answered:
        print(canonical_json(prompt.model_dump(by_alias=True, exclude_defaults=True)))
    print(f"{len(answered)} of {len(prompts)} prompts have recorded replies", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
