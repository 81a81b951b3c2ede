"""What was seen beside the rows of a run: CPU by process, and what each verdict rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from serve_bench.analysis.verdict import Verdict
from serve_bench.view.blocks import Fields, table_of
from serve_bench.view.document import Block, Code, Column, Facts, Flamegraph, Folded, Prose
from serve_bench.view.frame import ViewRow
from serve_bench.view.inside import mean_by_role, served_facts, usage_table
from serve_bench.view.names import Names, names_of
from serve_bench.view.rows import Entry, Page
from serve_bench.view.texts import cell_title


def inside_blocks(page: Page) -> Iterator[Block]:
    """Batches of each row, CPU of each process, and what each verdict rests on; folded."""
    names = names_of(page)
    served = tuple(
        (names.whole(entry), fact)
        for entry in page.entries
        for fact in served_facts(entry.line.trials, entry.line.cell.get("max_batch_size", 1))
    )
    if served:
        yield Folded("Counts of the replicas", (Facts(served),))
    yield from cpu_tables(page)
    yield from evidence(page, names)


def cpu_tables(page: Page) -> tuple[Block, ...]:
    """CPU by process and memory of each cell, folded; the figures of the chart and the host's."""
    tables = []
    for part in page.variants:
        for cell in part.cells:
            sampled = [entry for entry in cell.entries if entry.line.status != "profiled"]
            columns = [(entry.line.row.label, entry.line.trials) for entry in sampled]
            columns = [column for column in columns if mean_by_role(column[1])]
            caption = f"Variant {part.name}: {cell_title(cell.cell)}, % of a core"
            tables += [usage_table(caption, columns)] if columns else []
    return (Folded("CPU and memory by process, in figures", tuple(tables)),) if tables else ()


def evidence(page: Page, names: Names) -> tuple[Block, ...]:
    """Limits by row, with evidence, by launch; folded."""
    fields: Fields[tuple[Entry, str, Verdict]] = (
        (Column("launch", number=False), lambda row: row[1]),
        (Column("limited by", number=False), lambda row: row[2].text),
        (Column("reasons", number=False), lambda row: "; ".join(row[2].reasons) or "-"),
        (Column("not seen", number=False), lambda row: "; ".join(row[2].unseen) or "-"),
    )
    rows = [(entry, *launch) for entry in page.entries for launch in entry.verdicts.items()]
    table = table_of("By launch", fields, rows, group=lambda row: names.whole(row[0]))
    return (Folded("Limits by row, with evidence", (table,)),) if rows else ()


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
    graphs = [(row, tuple(_flamegraphs(row))) for row in rows]
    shown = [(row, drawn) for row, drawn in graphs if drawn]
    for place, (row, drawn) in enumerate(shown):
        yield from [Folded(row.name, drawn)] if place else drawn


def _flamegraphs(row: ViewRow) -> Iterator[Flamegraph]:
    for trial in row.trials:
        for profile in trial.profiles:
            path = str(profile.get("path", ""))
            if path and "failed" not in profile:
                process = f"{profile['role']} {profile['pid']}"
                words = (
                    f"flamegraph of {process} during {row.name}: the wider a frame, the more "
                    "samples had it on the stack"
                )
                yield Flamegraph(f"{row.name}: {process}", path, words)
