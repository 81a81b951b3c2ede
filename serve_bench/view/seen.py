"""What was seen beside the rows of a run: CPU by process, and what each verdict rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
from serve_bench.view.names import names_of
from serve_bench.view.rows import Page
from serve_bench.view.texts import cell_title


def inside_blocks(page: Page) -> Iterator[Block]:
    """CPU and memory by process in each cell, and what each verdict rests on; folded."""
    tables = []
    for part in page.variants:
        for cell in part.cells:
            lines = [entry.line for entry in cell.entries if entry.line.status != "profiled"]
            sampled = [(line.row.label, line.trials) for line in lines if mean_by_role(line.trials)]
            caption = f"Variant {part.name}: {cell_title(cell.cell)}, % of a core"
            tables += [usage_table(caption, sampled)] if sampled else []
    if tables:
        yield Folded("CPU and memory by process, in figures", tuple(tables))
    names = names_of(page)
    rows = [
        TableRow(
            (launch, verdict.text, "; ".join((*verdict.reasons, *verdict.unseen)) or "-"),
            group=names.whole(entry),
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
    opened = False
    for row in rows:
        profiles = [profile for trial in row.trials for profile in trial.profiles]
        drawn = []
        for profile in profiles:
            path = str(profile.get("path", ""))
            if path and "failed" not in profile:
                process = f"{profile['role']} {profile['pid']}"
                words = (
                    f"flamegraph of {process} during {row.name}: the wider a frame, the more "
                    "samples had it on the stack"
                )
                drawn.append(Flamegraph(f"{row.name}: {process}", path, words))
        if drawn:
            yield from [Folded(row.name, tuple(drawn))] if opened else drawn
            opened = True
