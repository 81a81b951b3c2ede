"""The run as GitHub-flavoured Markdown, for issues and pull requests.

Rule: one table for each variant, every row with its client; doubts and failures stand below the
table they are about, each with the name of its row.
"""

from __future__ import annotations

from collections.abc import Iterable

from serve_bench.report.page import (
    CellPart,
    Entry,
    Page,
    VariantPart,
    cell_title,
    latency,
    mean_and_std,
    number,
    ratio,
    remark,
)


def markdown(page: Page, before: Iterable[str] = ()) -> str:
    """The run as Markdown; the lines `before` stand between its title and its variants."""
    lines = [f"### {_cell(page.title)}", "", *before]
    for part in page.variants:
        lines += _variant(part, page)
    lines += [f"- **failed**: {one.what}: {one.message}" for one in page.failures]
    lines += [f"- {remark(one)}" for one in page.warnings]
    lines += [f"- {note}" for note in page.notes]
    lines.append(f"- host: {page.host}")
    if page.where is not None:
        lines.append(f"- records: `{page.where}`")
    return "\n".join(lines) + "\n"


def _variant(part: VariantPart, page: Page) -> list[str]:
    flags = " ".join(f"`{flag}`" for flag in part.env) or "no flags"
    lines = [f"#### Variant {part.name} ({flags})", ""]
    lines += [f"{part.engaged}.", ""] if part.engaged else []
    names, aligned = _header(page)
    lines += ["| " + " | ".join(names) + " |", "|" + "|".join(aligned) + "|"]
    for cell in part.cells:
        for entry in cell.entries:
            texts = [_cell(text) for text in _texts(entry, page)]
            lines.append("| " + " | ".join(texts) + " |")
    remarks = [f"- **failed**: {one.message}" for one in part.failures]
    remarks += [f"- {remark(one)}" for one in part.warnings]
    for cell in part.cells:
        where = cell_title(cell.cell)
        remarks += [f"- **failed**, {where}: {one.message}" for one in cell.failures]
        for entry in cell.entries:
            told = (*entry.remarks, *entry.facts)
            remarks += [f"- {where}, {entry.label}: {text}" for text in told]
    usage = [text for cell in part.cells for text in _usage(cell)]
    return [*lines, "", *remarks, *([""] if remarks else []), *usage]


def _usage(part: CellPart) -> list[str]:
    """CPU by process of a cell, folded away."""
    if part.usage is None:
        return []
    names = ("CPU, % of a core", *part.usage.columns, "MB")
    rows = ["| " + " | ".join(line) + " |" for line in (names, *part.usage.lines)]
    rows.insert(1, "|" + "|".join([":--", *["--:"] * (len(names) - 1)]) + "|")
    where = cell_title(part.cell)
    opened = f"<details><summary>CPU by process: {where}</summary>"
    return [opened, "", *rows, "", "</details>", ""]


def _header(page: Page) -> tuple[list[str], list[str]]:
    left, right = ":--", "--:"
    columns = [(name, right) for name in page.axes]
    columns += [("row", left), ("client", left), ("requests/s", right)]
    if page.launches > 1:
        columns.append(("std over launches", right))
    columns += [(f"{name} ms", right) for name in ("p50", "p90", "p99", "max")]
    columns.append(("errors", right))
    if page.base is not None:
        columns.append((f"ratio to {page.base}", right))
    if any(entry.published for entry in page.entries):
        columns.append(("published requests/s", right))
    return [name for name, _ in columns], [mark for _, mark in columns]


def _texts(entry: Entry, page: Page) -> list[str]:
    """The texts of a row, in the order of the header."""
    line, rate = entry.line, entry.rate
    rate_text = mean_and_std(rate) if rate is not None else entry.gap or "-"
    texts = [str(line.cell.get(name, "-")) for name in page.axes]
    texts += [entry.label, line.row.client, rate_text]
    if page.launches > 1:
        over = rate is not None and rate.launch_std is not None
        texts.append(f"{number(rate.launch_std)} ({rate.launches})" if rate and over else "-")
    texts += [latency(entry.latency_ms(name)) for name in ("p50", "p90", "p99", "max")]
    texts.append(str(line.errors) if line.trials else "-")
    if page.base is not None:
        texts.append(ratio(line, page.base))
    if any(other.published for other in page.entries):
        texts.append(str(entry.published or "-"))
    return texts


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
