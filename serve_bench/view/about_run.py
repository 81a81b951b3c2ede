"""What the pages of all kinds of run have: what was asked, the machine, the method.

Rule: figures come from the records and from analysis/statistics.py, as in every other form of
report; what is not recorded is left out, never guessed.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from serve_bench.analysis.checks import added_of
from serve_bench.analysis.statistics import Line
from serve_bench.core.figures import counted
from serve_bench.core.proof import contradictions
from serve_bench.core.result import JsonObject, Launch, Result, Run, Trial
from serve_bench.view.document import (
    Block,
    Column,
    Facts,
    Prose,
    Section,
    Table,
    TableRow,
    Text,
    Tone,
    sentences,
)
from serve_bench.view.figures import Value, declare, mean_of
from serve_bench.view.frame import Field, TableSpec, ViewRow, make_table
from serve_bench.view.names import names_of_lines
from serve_bench.view.rows import engaged_of

# How the rows of a run were executed, beside what was asked of them.


def _connections_used(line: Line) -> Value | None:
    """An open loop may do with fewer; from several nodes there are more, since each has so many."""
    workers = [trial.client["workers"] for trial in line.trials if trial.client.get("workers")]
    used = mean_of(sum(int(worker["connections"]) for worker in launch) for launch in workers)
    asked = line.row.connections
    return None if used is None else Value(used, of=asked if used < asked else None)


def _sent(line: Line) -> float | None:
    return mean_of(
        trial.counts.sent / seconds
        for trial in line.trials
        if (seconds := trial.seconds.get("measured", 0.0)) > 0
    )


def _client_adds(line: Line) -> float | None:
    return mean_of(added[0] for trial in line.trials if (added := added_of(trial)))


declare(
    *("connections_used", "connections", "connections of the load, mean of the launches"),
    _connections_used,
    title="connections",
    shown="",
)
declare(
    *("send_rate", "requests/s", "requests sent in a second of the windows"), _sent, title="sent"
)
declare(
    *("measured_time", "s", "length of the windows together, mean of the launches"),
    lambda line: mean_of(trial.seconds.get("measured") for trial in line.trials),
    title="measured",
)
declare(
    *("warmup", "s", "load before the first window, not counted, mean of the launches"),
    lambda line: mean_of(trial.warmup.seconds or None for trial in line.trials),
    title="warm-up",
)
declare("client_adds", "ns", "what the client adds to the mean latency", _client_adds)

EXECUTION: Final = ("connections_used", "send_rate", "measured_time", "warmup", "client_adds")
"""What proves that a row ran as it was asked."""


def _execution(rows: Sequence[ViewRow], suite: JsonObject) -> Table:
    """Each row as it ran; in what it differs from what was asked is said below it."""
    loads = [(row, row.entry.line) for row in rows if row.entry is not None]
    names = names_of_lines([line for _, line in loads])
    shown = []
    for row, line in loads:
        used = row.values.get("connections_used")
        short = used is not None and used.of and line.row.loop == "closed"
        differences = sentences(dict.fromkeys(_differences(line.trials)), "doubt")
        tones: dict[str, Tone] = {"connections_used": "doubt"} if short else {}
        shown.append(
            ViewRow(
                row.dims,
                row.values,
                name=names.name(line),
                warnings=differences,
                gap=row.gap,
                tones=tones,
            )
        )
    least, most = suite.get("warmup_min_s"), suite.get("warmup_max_s")
    until = f"warm-up: {least} to {most} s, until the rate is steady"
    fields = (Field("name", "row"), *(Field(figure) for figure in EXECUTION))
    return make_table(TableSpec("Plan and execution", fields, (until,) if most else ()), shown)


def _differences(trials: Sequence[Trial]) -> Iterator[str]:
    """In what a row was executed otherwise than it was asked for, beside what warnings say."""
    for trial in trials:
        if why := (trial.client.get("slices") or {}).get("why"):
            yield str(why)
        if trial.flags.get("cut"):
            ended, planned = trial.ended_in_windows, trial.row.requests or 0
            yield f"time ended it after {ended:,} of {planned:,} requests"
        yield from map(str, trial.client.get("notes") or ())


def asked(run: Run, more: Iterable[tuple[str, str]] = ()) -> Facts:
    """What was asked for: the command as it was typed, the suite, what the plan holds, when. `more`
    stands behind, or in the place of one of the same name."""
    suite, app = run.suite.get("name"), run.suite.get("app")
    named = (app.get("target") or app.get("name")) if isinstance(app, dict) else app
    pairs = {
        "command": command_line(run),
        "suite": suite if suite != run.command else "",
        "app": named if app else "",
        "planned": _planned(run) if len(run.plan) > 1 else "",
        "begun": moment(run.started_at),
        "run": run.id,
    }
    beside = dict(more)
    kept = ((name, str(text)) for name, text in pairs.items() if text and name not in beside)
    return Facts((*kept, *beside.items()))


def moment(text: str) -> str:
    """`2026-01-02 03:04:05 UTC`; a time of another zone as it is recorded."""
    day, _, time = text.removesuffix("+00:00").partition("T")
    return f"{day} {time.partition('.')[0]} UTC" if text.endswith("+00:00") and time else text


def command_line(run: Run) -> str:
    """The command as it can be typed again; of headers it has the names alone."""
    words = run.argv[1:] if run.argv[:1] == ("serve-bench",) else run.argv
    return shlex.join(("serve-bench", *words))


def _planned(run: Run) -> str:
    """`1 variant, 6 cells, 3 rows, 1 launch of each: 18 trials`."""
    variants, cells, rows, rounds = (
        len({part.variant for part in run.plan}),
        len({json.dumps(dict(part.cell), sort_keys=True) for part in run.plan}),
        len({part.row for part in run.plan}),
        len({part.round for part in run.plan}),
    )
    return (
        f"{counted(variants, 'variant')}, {counted(cells, 'cell')}, {counted(rows, 'row')}, "
        f"{counted(rounds, 'launch', 'launches')} of each: {counted(len(run.plan), 'trial')}"
    )


COMMIT: Final = 12
"""Characters of a commit that tell it from all others; the records have the whole."""


def machine(run: Run) -> Facts:
    """The host, as far as it is recorded, and the versions on it."""
    host = run.host
    commit, mark, changes = (run.git_commit or "").partition("+")
    short = f", commit {commit[:COMMIT]}{mark}{changes}" if commit else ""
    pairs = (
        ("CPU", host.get("cpu")),
        ("cores", _cores(host)),
        ("memory", _memory(host)),
        ("kernel", " ".join(str(host[key]) for key in ("kernel", "machine") if host.get(key))),
        ("governor", host.get("governor")),
        ("load before the start", _load(host)),
        ("Python", host.get("python")),
        ("Ray", host.get("ray")),
        ("serve-bench", f"{run.tool_version}{short}"),
        ("host", host.get("id")),
    )
    return Facts(tuple((name, str(text)) for name, text in pairs if text))


def _cores(host: JsonObject) -> str:
    counts = {kind: host.get(f"{kind}_cores") for kind in ("usable", "logical", "physical")}
    words = [f"{count} {kind}" for kind, count in counts.items() if count is not None]
    quota = host.get("cpu_quota_cores")
    return ", ".join([*words, *([] if quota is None else [f"quota {quota:g}"])])


def _memory(host: JsonObject) -> str:
    sizes = {"": host.get("memory_bytes"), "limit ": host.get("memory_limit_bytes")}
    return ", ".join(f"{name}{size / 2**30:.1f} GiB" for name, size in sizes.items() if size)


def _load(host: JsonObject) -> str:
    loads = {span: host.get(f"load_{span}m") for span in (1, 5, 15)}
    words = (f"{load:.2f} in {span} min" for span, load in loads.items() if load is not None)
    return ", ".join(words)


FORMULAS: Final = "How each figure is computed, with sources: docs/methodology.md."


def method(result: Result, rows: Sequence[ViewRow]) -> Section:
    """How it was measured: each row as it ran, the proof of each launch, the place of the formulas.
    What the run has none of is left out."""
    return Section("method", "Method", partial(_method_blocks, result, rows))


def _method_blocks(result: Result, rows: Sequence[ViewRow]) -> Iterator[Block]:
    if rows:
        yield _execution(rows, result.run.suite)
    if result.launches:
        yield _proofs(result.launches)
    yield Prose((FORMULAS,), "quiet")


def _proofs(launches: Sequence[Launch]) -> Table:
    """What is in force in the launches; those that prove the same stand together. A launch that
    serves no HTTP proves nothing about who answers it."""
    alike: dict[tuple[Text, ...], list[str]] = {}
    for launch in launches:
        used = launch.variant
        flags = [f"{name}={value}" for name, value in used.env.items()]
        flags += [f"{name} {value}" for name, value in used.http_options.items()]
        flags += [] if used.python is None else [f"python {used.python}"]
        wrong = tuple(contradictions(used, launch.proof))
        proved = Text("yes", "good") if "port_owner" in launch.proof else Text("-")
        cells = (
            Text(used.name, below=tuple(flags) or ("no flags",)),
            Text(engaged_of([launch]) or "-"),
            Text("no", "bad", wrong) if wrong else proved,
        )
        alike.setdefault(cells, []).append(launch.id)
    names = ("launches", "variant", "in force", "requested")
    columns = tuple(Column(name, number=False) for name in names)
    rows = (TableRow((", ".join(ids), *cells)) for cells, ids in alike.items())
    return Table("Proof", columns, tuple(rows))
