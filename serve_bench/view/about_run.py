"""What the pages of all kinds of run have: what was asked, the machine, the method.

Rule: figures come from the records and from analysis/statistics.py, as in every other form of
report; what is not recorded is left out, never guessed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from serve_bench.analysis.checks import added_of
from serve_bench.analysis.statistics import Line
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


declare(
    *("connections_used", "connections", "connections of the load, mean of the launches"),
    _connections_used,
    title="connections",
    shown="",
)
declare(
    *("send_rate", "requests/s", "requests sent in a second of the windows"),
    lambda line: mean_of(
        trial.counts.sent / seconds
        for trial in line.trials
        if (seconds := trial.seconds.get("measured", 0.0)) > 0
    ),
    title="sent",
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
declare(
    *("client_adds", "ns", "what the client adds to the mean latency"),
    lambda line: mean_of(added[0] for trial in line.trials if (added := added_of(trial))),
)

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
        tones: dict[str, Tone] = {"connections_used": "doubt"} if short else {}
        said = sentences(dict.fromkeys(_differences(line.trials)), "doubt")
        plain = replace(row, group="", notes=(), tones=tones)
        shown.append(replace(plain, name=names.name(line), warnings=said))
    least, most = suite.get("warmup_min_s"), suite.get("warmup_max_s")
    until = f"warm-up: {least} to {most} s, until the rate is steady"
    fields = (Field("name", "row"), *map(Field, EXECUTION))
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
    """What was asked for: the command as it was typed, the suite, when. `more` stands behind, or in
    the place of one of the same name."""
    suite, app = run.suite.get("name"), run.suite.get("app")
    pairs = {
        "command": command_line(run),
        "suite": suite if suite != run.command else None,
        "app": (app.get("target") or app.get("name")) if isinstance(app, dict) else app,
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


COMMIT: Final = 12
"""Characters of a commit that tell it from all others; the records have the whole."""


def machine(run: Run) -> Facts:
    """The host, as far as it is recorded, and the versions on it."""
    host = run.host
    commit, mark, changes = (run.git_commit or "").partition("+")
    short = f", commit {commit[:COMMIT]}{mark}{changes}" if commit else ""
    cores = {f"{kind}_cores": f"{{}} {kind}" for kind in ("usable", "logical", "physical")}
    loads = {f"load_{span}m": f"{{:.2f}} in {span} min" for span in (1, 5, 15)}
    sizes = {name: (host.get(name) or 0) / 2**30 or None for name in _MEMORY}
    pairs = (
        ("CPU", host.get("cpu")),
        ("cores", _listed(host, {**cores, "cpu_quota_cores": "quota {:g}"})),
        ("memory", _listed(sizes, _MEMORY)),
        ("kernel", _listed(host, {"kernel": "{}", "machine": "{}"}, " ")),
        ("governor", host.get("governor")),
        ("load before the start", _listed(host, loads)),
        ("Python", host.get("python")),
        ("Ray", host.get("ray")),
        ("serve-bench", f"{run.tool_version}{short}"),
        ("host", host.get("id")),
    )
    return Facts(tuple((name, str(text)) for name, text in pairs if text))


_MEMORY: Final = {"memory_bytes": "{:.1f} GiB", "memory_limit_bytes": "limit {:.1f} GiB"}


def _listed(host: JsonObject, forms: Mapping[str, str], between: str = ", ") -> str:
    """What is recorded of a host under these names, each in its form."""
    known = ((form, host.get(name)) for name, form in forms.items())
    return between.join(form.format(value) for form, value in known if value is not None)


def method(result: Result, rows: Sequence[ViewRow]) -> Section:
    """How it was measured: each row as it ran, the proof of each launch, the place of the formulas.
    What the run has none of is left out."""

    def blocks() -> Iterator[Block]:
        if rows:
            yield _execution(rows, result.run.suite)
        if result.launches:
            yield _proofs(result.launches)
        yield Prose(("How each figure is computed, with sources: docs/methodology.md.",), "quiet")

    return Section("method", "Method", tuple(blocks()))


def _proofs(launches: Sequence[Launch]) -> Table:
    """What is in force in the launches; those that prove the same stand together. A launch that
    serves no HTTP proves nothing about who answers it."""
    alike: dict[tuple[Text, ...], list[str]] = {}
    for launch in launches:
        used, wrong = launch.variant, tuple(contradictions(launch.variant, launch.proof))
        flags = [f"{name}={value}" for name, value in used.env.items()]
        flags += [f"{name} {value}" for name, value in used.http_options.items()]
        flags += [] if used.python is None else [f"python {used.python}"]
        proved = Text("yes", "good") if "port_owner" in launch.proof else Text("-")
        cells = (
            Text(used.name, below=tuple(flags) or ("no flags",)),
            Text(", ".join(engaged_of([launch])) or "-"),
            Text("no", "bad", wrong) if wrong else proved,
        )
        alike.setdefault(cells, []).append(launch.id)
    names = ("launches", "variant", "in force", "requested")
    columns = tuple(Column(name, number=False) for name in names)
    rows = (TableRow((", ".join(ids), *cells)) for cells, ids in alike.items())
    return Table("Proof", columns, tuple(rows))
