"""What pages of all kinds of run have: the request, the machine, the method, looks inside.

Rule: figures come from the records and from analysis/statistics.py, as in every other form of
report; what is not recorded is left out, never guessed."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import starmap
from typing import Final

from msgspec import UNSET

from serve_bench.analysis.checks import added_of
from serve_bench.analysis.statistics import Line
from serve_bench.core.proof import contradictions
from serve_bench.core.result import Launch, Run, Trial
from serve_bench.view.document import (
    Block,
    Code,
    Column,
    Facts,
    Flamegraph,
    Folded,
    Prose,
    Table,
    TableRow,
    Text,
)
from serve_bench.view.figures import Value, declare, mean_of
from serve_bench.view.frame import ViewRow, make_spec, make_table
from serve_bench.view.inside import mean_by_role, usage_table
from serve_bench.view.rows import Page, cell_title, describe_engaged


def _connections_used(line: Line) -> Value | None:
    """Return the connections used: an open loop may do with fewer than the row has.

    From several nodes there are more, since each has so many."""
    launches = (trial.client.workers for trial in line.trials if trial.client.workers)
    used = mean_of(sum(worker.connections for worker in workers) for workers in launches)
    asked = line.row.connections
    return None if used is None else Value(used, of=asked if used < asked else None)


def _send_rate(line: Line) -> float | None:
    spans = [(trial.counts.sent, trial.seconds.measured) for trial in line.trials]
    return mean_of(sent / seconds for sent, seconds in spans if seconds)


_meaning = "connections of the load, mean of the launches"
declare(
    ("connections_used", "connections", _meaning, "connections"),
    compute=_connections_used,
    shown="",
)
for _name, _unit, _title, _meaning, _compute in (
    ("send_rate", "requests/s", "sent", "requests sent in a second of the windows", _send_rate),
    (
        *("measured_time", "s", "measured", "length of the windows together"),
        lambda line: mean_of(trial.seconds.measured for trial in line.trials),
    ),
    (
        *("warmup", "s", "warm-up", "load before the first window, not counted"),
        lambda line: mean_of(trial.warmup.seconds or None for trial in line.trials),
    ),
    (
        *("client_adds", "ns", "client adds", "what the client adds to the mean latency"),
        lambda line: mean_of(added[0] for trial in line.trials if (added := added_of(trial))),
    ),
):
    declare((_name, _unit, f"{_meaning}, mean of the launches", _title), compute=_compute)

EXECUTION: Final = ("connections_used", "send_rate", "measured_time", "warmup", "client_adds")
"""What proves that a row ran as it was asked."""


def describe(run: Run, more: Iterable[tuple[str, str]] = ()) -> tuple[Facts, Facts]:
    """Return the request and the machine as facts.

    The request: the command as it was typed, the suite, when, and `more`."""
    pairs = {
        "command": command_line(run),
        "suite": run.asked.name,
        "app": run.asked.target,
        "begun": moment(run.started_at),
        "run": run.id,
        **dict(more),
    }
    asked = Facts(tuple((name, str(text)) for name, text in pairs.items() if text))
    return asked, machine(run)


def moment(text: str) -> str:
    """Render a time of a record as `2026-01-02 03:04:05 UTC`."""
    return f"{text[:19].replace('T', ' ')} UTC"


def command_line(run: Run) -> str:
    """Render the command as it can be typed again; of headers it has only the names."""
    words = run.argv[1:] if run.argv[:1] == ("serve-bench",) else run.argv
    return shlex.join(("serve-bench", *words))


_HOST: Final = (
    "cpu usable_cores logical_cores physical_cores cpu_quota_cores memory_bytes memory_limit_bytes "
    "kernel machine governor load_1m load_5m load_15m python ray id"
).split()


def machine(run: Run) -> Facts:
    """Describe the host before the start, as far as it is recorded, and the versions on it."""
    pairs = []
    for name, value in ((name, getattr(run.host, name)) for name in _HOST):
        if not value:
            continue
        title = name.removesuffix("_bytes").replace("_", " ").replace("cpu", "CPU")
        text = f"{value:.3g}" if isinstance(value, float) else f"{value}"
        pairs.append((title, f"{value / 2**30:.1f} GiB" if name.endswith("_bytes") else text))
    commit = f", commit {run.git_commit}" if run.git_commit else ""
    return Facts((*pairs, ("serve-bench", f"{run.tool_version}{commit}")))


def inside_blocks(page: Page, rows: Sequence[ViewRow]) -> Iterator[Block]:
    """Yield folded tables: CPU and memory by process in each cell, what each verdict rests on."""
    sampled: dict[str, dict[str, Sequence[Trial]]] = {}
    limits = []
    for row in page.rows:
        line = row.line
        if line.status != "profiled" and mean_by_role(line.trials):
            caption = f"Variant {line.variant}: {cell_title(line.cell)}, % of a core"
            sampled.setdefault(caption, {})[page.loads[line.row]] = line.trials
        for launch, verdict in row.verdicts.items():
            reasons = "; ".join(dict.fromkeys(verdict.reasons + verdict.unseen)) or "-"
            words = (launch, verdict.text, reasons)
            limits.append(TableRow(tuple(map(Text, words)), group=row.name))
    if sampled:
        tables = starmap(usage_table, sampled.items())
        yield Folded("CPU and memory by process, in figures", tuple(tables))
    if limits:
        heads = ("launch", "limited by", "reasons, and what was not seen")
        yield Folded("Limits by row, with evidence", (_word_table("By launch", heads, limits),))


def _word_table(caption: str, heads: Iterable[str], rows: Iterable[TableRow]) -> Table:
    return Table(caption, tuple(Column(head, number=False) for head in heads), tuple(rows))


def failure_blocks(page: Page) -> Iterator[Block]:
    """Yield the failures that have last lines, folded; their messages stand where they struck."""
    blocks: list[Block] = []
    for failure in (failure for failure in page.all_failures if failure.detail):
        blocks.append(Prose((f"failed: {failure.what}: {failure.message}",), "bad"))
        blocks.append(Code("\n".join(failure.detail)))
    if blocks:
        yield Folded("Failures, with the last log lines", tuple(blocks))


def flamegraphs(page: Page, rows: Sequence[ViewRow]) -> Iterator[Block]:
    """Yield the flamegraphs of profiled rows, those of each folded but for the first row."""
    drawn: dict[str, list[Flamegraph]] = {}
    for row in rows:
        for part in (part for trial in row.trials for part in trial.profiles):
            if part.path and not part.failed:
                title = f"{row.name}: {part.role} {part.pid}"
                drawn.setdefault(row.name, []).append(Flamegraph(title, part.path))
    for number, (name, graphs) in enumerate(drawn.items()):
        yield from [Folded(name, tuple(graphs))] if number else graphs


def method(page: Page, rows: Sequence[ViewRow]) -> Iterator[Block]:
    """Yield how it was measured: each row as it ran, the proofs, the place of the formulas.

    What the run has none of is left out."""
    asked = page.result.run.asked
    span = f"{asked.warmup_min_s} to {asked.warmup_max_s} s"
    until = (f"warm-up: {span}, until the rate is steady",) if asked.warmup_max_s else ()
    names = " ".join(("client rate_per_s", *EXECUTION, "batch_size_mean forward"))
    spec = make_spec("Plan and execution", names, row="row", notes=until)
    if rows:
        yield make_table(spec, [replace(row, group="", warnings=(), tones={}) for row in rows])
    if page.result.launches:
        yield _proofs(page.result.launches)
    yield Prose(("How each figure is computed, with sources: docs/methodology.md.",), "quiet")


def _proofs(launches: Sequence[Launch]) -> Table:
    """Make the table of what is in force in the launches; those that prove the same share a row.

    A launch that serves no HTTP proves nothing about who answers it."""
    alike: dict[tuple[Text, ...], list[str]] = {}
    for launch in launches:
        used, wrong = launch.variant, tuple(contradictions(launch.variant, launch.proved))
        asked = {**used.env, **used.http_options, "python": used.python}
        flags = tuple(f"{name}={value}" for name, value in asked.items() if value is not None)
        proved = Text("-") if launch.proved.port_owner is UNSET else Text("yes", "good")
        cells = (
            Text(used.name, below=flags or ("no flags",)),
            Text(", ".join(describe_engaged([launch])) or "-"),
            Text("no", "bad", wrong) if wrong else proved,
        )
        alike.setdefault(cells, []).append(launch.id)
    rows = (TableRow((Text(", ".join(ids)), *cells)) for cells, ids in alike.items())
    return _word_table("Proof", ("launches", "variant", "in force", "requested"), rows)
