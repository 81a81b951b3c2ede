"""What was seen beside the rows of a run: CPU by process, and what each verdict rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import starmap

from serve_bench.core.result import Trial
from serve_bench.view.document import (
    Block,
    Code,
    Column,
    Flamegraph,
    Folded,
    Prose,
    Table,
    TableRow,
)
from serve_bench.view.frame import ViewRow
from serve_bench.view.inside import mean_by_role, usage_table
from serve_bench.view.names import cell_title
from serve_bench.view.rows import Page


def inside_blocks(page: Page) -> Iterator[Block]:
    """CPU and memory by process in each cell, and what each verdict rests on; folded."""
    sampled: dict[str, list[tuple[str, Sequence[Trial]]]] = {}
    for line in (entry.line for entry in page.entries):
        if line.status != "profiled" and mean_by_role(line.trials):
            caption = f"Variant {line.variant}: {cell_title(line.cell)}, % of a core"
            sampled.setdefault(caption, []).append((line.row.label, line.trials))
    if sampled:
        tables = starmap(usage_table, sampled.items())
        yield Folded("CPU and memory by process, in figures", tuple(tables))
    rows = [
        TableRow(
            (
                launch,
                verdict.text,
                "; ".join(dict.fromkeys(verdict.reasons + verdict.unseen)) or "-",
            ),
            group=page.names.name(entry.line),
        )
        for entry in page.entries
        for launch, verdict in entry.verdicts.items()
    ]
    heads = ("launch", "limited by", "reasons, and what was not seen")
    columns = tuple(Column(head, number=False) for head in heads)
    if rows:
        yield Folded("Limits by row, with evidence", (Table("By launch", columns, tuple(rows)),))


def failure_blocks(page: Page) -> Iterator[Block]:
    """The failures whose last lines are known; the messages alone stand where they struck."""
    blocks: list[Block] = []
    for failure in page.all_failures:
        if failure.detail:
            blocks.append(Prose((f"failed: {failure.what}: {failure.message}",), "bad"))
            blocks.append(Code("\n".join(failure.detail)))
    if blocks:
        yield Folded("Failures, with the last log lines", tuple(blocks))


def flamegraphs(rows: Sequence[ViewRow]) -> Iterator[Block]:
    """The flamegraphs of profiled rows, those of the first open."""
    words = "the wider a frame, the more samples had it on the stack"
    opened = False
    for row in rows:
        drawn = []
        for profile in (profile for trial in row.trials for profile in trial.profiles):
            if profile.get("path") and "failed" not in profile:
                what = f"{profile['role']} {profile['pid']}"
                said = f"flamegraph of {what} during {row.name}: {words}"
                drawn.append(Flamegraph(f"{row.name}: {what}", str(profile["path"]), said))
        if drawn:
            yield from [Folded(row.name, tuple(drawn))] if opened else drawn
            opened = True
