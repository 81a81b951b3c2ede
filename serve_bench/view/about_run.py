"""What the pages of all kinds of run have: what was asked, the machine, the method.

Rule: figures come from the records and from analysis/statistics.py, as in every other form of
report; what is not recorded is left out, never guessed. Rows stand below, launches in pieces.py.
"""

from __future__ import annotations

import json
import shlex
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from serve_bench.analysis.checks import added_of, unfair_sentences
from serve_bench.analysis.statistics import MAIN, Line, summarize
from serve_bench.core.figures import counted
from serve_bench.core.load_result import Warmup
from serve_bench.core.result import JsonObject, Result, Run, Trial
from serve_bench.view.blocks import NOTHING, Fields, count, plain, proofs, table_of, whole_proofs
from serve_bench.view.document import (
    Block,
    Cell,
    Column,
    Document,
    Facts,
    Finding,
    Number,
    Prose,
    Section,
    Table,
    Text,
    Tile,
    Tone,
    sentences,
)
from serve_bench.view.figures import mean_of
from serve_bench.view.rows import PROFILED
from serve_bench.view.slo import with_slo
from serve_bench.view.texts import cell_title

# How the rows of a run were executed, beside what was asked of them.
#
# Rule: what differs from what was asked is marked where it stands, and said in words under the row.


def executed(lines: Sequence[Line], suite: JsonObject) -> Table:
    """Each row: asked and executed connections, rates and windows, the warm-up, and what was
    answered."""
    alike = common_axes([line.cell for line in lines])
    clients = {_client(line) for line in lines}

    def group(line: Line) -> str:
        own = {name: value for name, value in line.cell.items() if name not in alike}
        return f"{line.variant}: {cell_title(own)}" if own else line.variant

    # Where each of several rows has a heading of its own, that is its name.
    apart = len(lines) > 1 and len({group(line) for line in lines}) == len(lines)

    def name(line: Line) -> Text:
        label = f"{line.row.label} (profiled)" if line.status == "profiled" else line.row.label
        client = (_client(line),) if len(clients) > 1 else ()
        return Text(group(line), below=(label, *client)) if apart else Text(label, below=client)

    windows = "episodes" if suite.get("steps") else _thing(lines)
    fields: Fields[Line] = (
        (Column("row", number=False), name),
        (Column("connections", "asked"), lambda line: count(line.row.connections)),
        (Column("used"), _connections),
        (Column("processes"), _processes),
        (Column("rate", "asked, requests/s"), lambda line: plain(line.row.rate_per_s)),
        (Column("sent", "requests/s"), _sent),
        (Column(windows, "asked"), lambda line: _asked_cell(line, suite)),
        (Column("measured"), _measured),
        (Column("warm-up", "s"), _warmup),
        (Column("steady"), _steady),
        (Column("completed", "requests"), lambda line: _requests(line, line.completed)),
        (Column("failed", "requests"), lambda line: _requests(line, line.errors, "bad")),
        (Column("client adds", "ms"), _client_adds),
    )
    notes = [f"client: {clients.pop()}"] if len(clients) == 1 else []
    notes += [f"every cell: {cell_title(alike)}"] if alike else []
    return table_of(
        "Plan and execution",
        fields,
        lines,
        (*notes, *_notes(lines, suite)),
        lambda line: sentences(_differences(line), "doubt"),
        lambda line: "" if apart else group(line),
    )


def _client(line: Line) -> str:
    return f"{line.row.client}, {line.row.loop} loop"


def _client_adds(line: Line) -> Number:
    """What the client adds to the mean latency, the mean of the launches."""
    added = mean_of(added[0] for trial in line.trials if (added := added_of(trial)))
    return NOTHING if added is None else plain(added / 1e6, 3)


def _warmed(line: Line) -> list[Warmup]:
    return [trial.warmup for trial in line.trials if trial.warmup.seconds]


def _notes(lines: Sequence[Line], suite: JsonObject) -> Iterator[str]:
    if any(line.trials for line in lines) and not any(map(_warmed, lines)):
        yield "no warm-up before a row"
    launches = [len(line.keys) for line in lines if line.status != "profiled"]
    if max(launches, default=0) > 1:
        each = _span(launches, "{}")
        yield f"launches of a row: {each}; requests of all, the mean of their warm-ups"
    least, most = suite.get("warmup_min_s"), suite.get("warmup_max_s")
    timed = any(line.row.requests_each is None for line in lines)
    if timed and least is not None and most is not None:
        yield (
            f"warm-up: {least:g} to {most:g} s, until the rate is steady; not counted; the load "
            "continues into the first window"
        )
    if any(line.status == "profiled" for line in lines):
        yield PROFILED


def common_axes(cells: Sequence[JsonObject]) -> dict[str, Any]:
    """The axes that every cell has with one value: said once, not with each row."""
    return {
        name: value
        for name, value in cells[0].items()
        if all(name in cell and cell[name] == value for cell in cells)
    }


def _thing(lines: Sequence[Line]) -> str:
    """What is asked of rows: windows of time, so many requests, or either."""
    counted = {line.row.requests_each is not None for line in lines}
    return (
        "windows or requests" if len(counted) > 1 else "requests" if True in counted else "windows"
    )


def _workers(line: Line) -> list[Sequence[Mapping[str, Any]]]:
    return [trial.client["workers"] for trial in line.trials if trial.client.get("workers")]


def _connections(line: Line) -> Number:
    """Those that the load workers had; a dash where the client does not tell."""
    used = [sum(int(one["connections"]) for one in workers) for workers in _workers(line)]
    if not used:
        return NOTHING
    # An open loop may do with fewer; from several nodes there are more: so many on each.
    off = line.row.loop == "closed" and any(one < line.row.connections for one in used)
    return Number(_span(used, "{:,.0f}"), statistics.fmean(used), "doubt" if off else "plain")


def _processes(line: Line) -> Number:
    planned = [] if line.row.processes is None else [line.row.processes]
    used = [len(workers) for workers in _workers(line)] or planned
    return Number(_span(used, "{:,.0f}"), statistics.fmean(used)) if used else NOTHING


def _sent(line: Line) -> Number:
    """Of an open loop the requests sent a second, in the mean of the launches."""
    return plain(
        mean_of(
            trial.counts.sent / trial.seconds["measured"]
            for trial in line.trials
            if line.row.loop == "open" and trial.seconds.get("measured")
        )
    )


def _asked_cell(line: Line, suite: JsonObject) -> str:
    """`10 x 1 s`, so many requests, the seconds of a side of versus, or the episodes of rpc with
    the calls of each observer in one (or as many as begin in so long)."""
    if line.row.requests is not None:
        return f"{line.row.requests:,}"
    windows, length, side = (suite.get(name) for name in ("windows", "window_s", "side_s"))
    if windows is not None and length is not None:
        return f"{windows} x {length:g} s"
    if side is not None:
        return f"{side:g} s"
    episodes, calls, most = (suite.get(name) for name in ("episodes", "steps", "seconds"))
    if calls is None or (episodes is None and most is None):
        return "-"
    return f"{episodes:,} x {calls:,} calls" if most is None else f"{most:g} s"


def _measured(line: Line) -> Cell:
    """The windows of the launches; one window is as long as it took."""
    if not line.trials:
        return Text("not measured", "bad")
    metrics = [(trial.window_s, trial.metrics.get(MAIN)) for trial in line.trials]
    windows = [(length, len(m.windows)) for length, m in metrics if m is not None and m.windows]
    if not windows:
        return "-"
    lengths = f"{_span([length for length, _ in windows], '{:.3g}')} s"
    counts = [number_of for _, number_of in windows]
    return lengths if set(counts) == {1} else f"{_span(counts, '{:,}')} x {lengths}"


def _warmup(line: Line) -> Number:
    """Its mean over launches; a dash where there was none."""
    return plain(mean_of(warmup.seconds for warmup in _warmed(line)), 3)


def _steady(line: Line) -> Text:
    """Whether the rate had settled when the first window began."""
    if not (warmed := _warmed(line)):
        return Text("-")
    steady = sum(one.steady for one in warmed)
    word = "yes" if steady == len(warmed) else "no" if not steady else f"{steady} of {len(warmed)}"
    if all(one.judged is False for one in warmed):
        word = "not judged"
    return Text(word, "plain" if steady == len(warmed) else "doubt")


def _requests(line: Line, value: int, tone: Tone = "plain") -> Number:
    return count(value, tone if value else "plain") if line.trials else NOTHING


def _differences(line: Line) -> Iterator[str]:
    """In what the row was executed otherwise than it was asked for, and in which launches."""
    done, planned = len(line.trials), len(line.keys)
    if 0 < done < planned:
        yield f"{done} of {planned} launches measured"
    launches: dict[str, list[int]] = {}
    for trial in line.trials:
        for words in _differs(trial):
            launches.setdefault(words, []).append(trial.round)
    for words, rounds in launches.items():
        if len(rounds) == planned:
            yield words
        else:
            yield f"launch{'es' if len(rounds) > 1 else ''} {', '.join(map(str, rounds))}: {words}"


def _differs(trial: Trial) -> Iterator[str]:
    why = (trial.client.get("slices") or {}).get("why")
    if why:
        yield str(why)
    if trial.flags.get("cut"):
        ended = trial.ended_in_windows
        yield f"time ended it after {ended:,} of {trial.row.requests or 0:,} requests"
    if trial.flags.get("interrupted"):
        yield "broken off before its end"
    if trial.flags.get("unsettled"):
        yield "begun before the previous row's requests had ended"
    yield from map(str, trial.client.get("notes") or ())
    if stretched := trial.client.get("stretched"):
        yield str(stretched)


def _span(values: Sequence[float], form: str) -> str:
    """`3`, or `3 to 5` where the values differ as they are written."""
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


FORMULAS: Final = "How each figure is computed, with sources: docs/methodology.md."

COMMIT: Final = 12
"""Characters of a commit that tell it from all others; the records have the whole."""


def run_document(
    result: Result,
    where: str | None,
    *,
    findings: Iterable[Finding],
    doubts: Iterable[Finding],
    sections: Iterable[Section],
    facts: Iterable[tuple[str, str]] = (),
    title: str = "",
    tiles: Sequence[Tile] = (),
) -> Document:
    """The document of one run: what its kind says, with its SLO, the command, the machine and the
    place of the records. `facts` stand behind those of every run, or in the place of one of the
    same name; `title` without the id of the run."""
    run, own = result.run, tuple(facts)
    replaced = {name for name, _ in own}
    told, parts = with_slo(result, tuple(findings), tuple(sections))
    told = (*sentences(unfair_sentences(result.trials), "bad"), *told)
    return Document(
        title=f"{title or f'serve-bench {run.command}'}, run {run.id}",
        command=run.command,
        run=Facts((*(one for one in asked(run).pairs if one[0] not in replaced), *own)),
        machine=machine(run),
        findings=told,
        doubts=tuple(doubts),
        sections=parts,
        where=where,
        argv=run.argv,
        records=() if where is None else (where,),
        tiles=tuple(tiles),
    )


def asked(run: Run) -> Facts:
    """What was asked for: the command as it was typed, the suite, what the plan holds, when."""
    suite, app = run.suite.get("name"), run.suite.get("app")
    named = (app.get("target") or app.get("name")) if isinstance(app, dict) else app
    pairs = (
        ("command", command_line(run)),
        ("suite", suite if suite != run.command else ""),
        ("app", named if app else ""),
        ("planned", _planned(run) if len(run.plan) > 1 else ""),
        ("begun", moment(run.started_at)),
        ("run", run.id),
    )
    return Facts(tuple((name, str(text)) for name, text in pairs if text))


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
    variants = len({one.variant for one in run.plan})
    cells = len({json.dumps(dict(one.cell), sort_keys=True) for one in run.plan})
    rows = len({one.row for one in run.plan})
    launches = len({one.round for one in run.plan})
    return (
        f"{counted(variants, 'variant')}, {counted(cells, 'cell')}, {counted(rows, 'row')}, "
        f"{counted(launches, 'launch', 'launches')} of each: {counted(len(run.plan), 'trial')}"
    )


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
    seen = {kind: host.get(f"{kind}_cores") for kind in ("usable", "logical", "physical")}
    quota = host.get("cpu_quota_cores")
    words = [f"{count} {kind}" for kind, count in seen.items() if count is not None]
    return ", ".join([*words, *([] if quota is None else [f"quota {quota:g}"])])


def _memory(host: JsonObject) -> str:
    sizes = {"": host.get("memory_bytes"), "limit ": host.get("memory_limit_bytes")}
    return ", ".join(f"{name}{size / 2**30:.1f} GiB" for name, size in sizes.items() if size)


def _load(host: JsonObject) -> str:
    spans = [span for span in (1, 5, 15) if host.get(f"load_{span}m") is not None]
    loads = ", ".join(f"{host[f'load_{span}m']:.2f}" for span in spans)
    return f"{loads} (mean over {', '.join(map(str, spans))} min)" if spans else ""


def method(result: Result, lines: Sequence[Line] | None = None) -> Section:
    """How it was measured: each row as declared and as executed, the proof of each launch, the
    place of the formulas. What the run has none of is left out."""
    return Section("method", "Method", partial(_method_blocks, result, lines))


def _method_blocks(result: Result, lines: Sequence[Line] | None) -> Iterator[Block]:
    if lines := summarize(result) if lines is None else lines:
        yield executed(lines, result.run.suite)
    if result.launches:
        yield proofs(result.launches)
        yield from whole_proofs(result.launches)
    yield Prose((FORMULAS,), "quiet")
