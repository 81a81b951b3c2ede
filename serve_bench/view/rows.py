"""The rows of a run with their warnings and failures, and what is about no row.

Rule: all that belongs together is joined here once; a form of report only lays it out. Nothing is
left out: what was planned and not measured has its row too, and a failure stands where it struck
(row, variant or run). No layout, no colour here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Final

from serve_bench.analysis.checks import Warning, checks
from serve_bench.analysis.statistics import MAIN, Line, answered, summarize
from serve_bench.analysis.verdict import Verdict, limited_by
from serve_bench.core.axes import AXES
from serve_bench.core.facts import PortOwner, TrialUsage
from serve_bench.core.result import Failure, JsonObject, Launch, Result, Trial
from serve_bench.core.traffic import Row
from serve_bench.view.csv import pick
from serve_bench.view.document import Finding, ReportOptions, Tone
from serve_bench.view.figures import FIGURES, ROW_FIGURES, Value, compute_values
from serve_bench.view.inside import describe_profiled, describe_trial

NS_PER_MS: Final = 1e6

BRIEFS: Final = {axis.name: axis.brief for axis in AXES.values() if axis.brief}
"""Short names of axes, where rows are named by them."""


def limit_words(limit: Verdict | None) -> str:
    """Render `limited by replica CPU 98 % (high confidence)`; that it is unclear or not sampled."""
    if limit is None:
        return "CPU was not sampled"
    return f"limit {limit.text}" if limit.cause == "unclear" else f"limited by {limit.text}"


def cell_title(cell: JsonObject) -> str:
    """Render a cell as `max_batch_size 1, max_ongoing_requests 10000, num_replicas 8`."""
    return ", ".join(f"{name} {value}" for name, value in cell.items()) or "app as it is"


NO_LOAD: Final = Line("", {}, Row("", "", 0), (), (), "not measured")
"""The line of a row that stands for no load: it has no key."""


@dataclass(frozen=True)
class ViewRow:
    """What was observed somewhere: a load, or what is derived from loads."""

    dims: Mapping[str, Any]  # what it differs by from others
    values: Mapping[str, Value] = field(default_factory=dict)
    name: str = ""  # the same in few words
    group: str = ""  # a heading over it and others
    warnings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()  # small print
    gap: str = ""  # what is missing of it
    tones: Mapping[str, Tone] = field(default_factory=dict)
    line: Line = NO_LOAD  # its load, or the one that a derived row stands for (NO_LOAD: none)
    cell: str = ""  # of `line`
    place: str = ""  # the name without the load
    trials: Sequence[Trial] = ()  # of `line`
    failures: tuple[Failure, ...] = ()  # of `line`
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)  # by launch, if CPU was sampled
    limited: Verdict | None = None  # the verdict of most launches
    hint: str = ""  # what to try against that limit, where known

    def value(self, figure: str) -> float | None:
        """Return a figure; None where it was not seen."""
        return self.values[figure].value if figure in self.values else None

    def text(self, figure: str) -> str:
        """Render a figure, or the member of a family."""
        return FIGURES[figure.partition(".")[0]].show(self.values.get(figure))


@dataclass(frozen=True, kw_only=True)
class RowRules:
    """How rows are made."""

    figures: Sequence[str] = ()  # beside those of all kinds of run
    # By what was sampled the limit of a trial is judged; empty: it is not.
    usage_of: Callable[[Trial], TrialUsage] = lambda trial: trial.usage
    codes: Collection[str] | None = None  # of the warnings that hold for such a row, None: of all


@dataclass(frozen=True)
class Page:
    """A run as reports show it."""

    result: Result  # as it was recorded
    variants: tuple[str, ...]  # by name
    axes: tuple[str, ...]  # those that vary among its cells
    loads: Mapping[Row, str]  # their names, in order
    warnings: tuple[Warning, ...]  # about no row
    failures: tuple[Failure, ...]  # about no row
    all_failures: tuple[Failure, ...]  # about rows too
    rows: Sequence[ViewRow] = ()  # by variant and cell
    options: ReportOptions = field(default_factory=ReportOptions)

    @cached_property
    def notes(self) -> Sequence[str]:
        """How the figures were measured, and what to try against each cause that limited a row."""
        plain = [row for row in self.rows if row.dims["status"] != "profiled"]
        trials = [trial for row in plain for trial in row.trials]
        windows = {
            (len(metric.windows), trial.window_s)
            for trial in trials
            if (metric := trial.metrics.get(MAIN)) is not None and metric.windows
        }
        notes = []
        if windows:
            shown = " or ".join(f"{count} x {length:g} s" for count, length in sorted(windows))
            notes.append(f"requests/s: mean ± std (ddof 0) over windows, {shown}; latency in ms")
        seen = [trial.serve_metrics for trial in trials]
        if absent := [metrics.why for metrics in seen if metrics.status == "absent"]:
            notes.append(f"Serve's own metrics are absent in {len(absent)} trials: {absent[0]}")
        return [*notes, *dict.fromkeys(filter(None, (row.hint for row in self.rows)))]

    def bare_rows(self) -> Iterator[ViewRow]:
        """Yield the loads with only the failures, where others are the figures.

        Some warnings are not of slices, and those of a comparison stand beside its verdicts."""
        for row in self.rows:
            bad = tuple(seen for seen in row.warnings if seen.tone == "bad")
            yield replace(row, warnings=bad)


def make_page(result: Result, rules: RowRules = RowRules()) -> Page:
    """Gather the loads of a run, planned ones that were not measured too."""
    lines, warnings = summarize(result), checks(result)
    axes = dict.fromkeys(axis for line in lines for axis in line.cell)
    keys = {key for line in lines for key in line.keys}
    struck = [failure for failure in result.failures if failure.what != "worker"]
    # Loads by their labels; with client, size of the data or place where labels are alike.
    rows = list(dict.fromkeys(line.row for line in lines))
    choices = [
        [row.label for row in rows],
        [f"{row.label} ({row.client})" for row in rows],
        [f"{row.label} ({row.client}, {row.data_size} data)" for row in rows],
        [f"{row.label} (row {number})" for number, row in enumerate(rows, 1)],
    ]
    loads = {
        row: next(names[place] for names in choices if names.count(names[place]) == 1)
        for place, row in enumerate(rows)
    }
    page = Page(
        result=result,
        variants=tuple(dict.fromkeys(line.variant for line in lines)),
        axes=tuple(axis for axis in axes if len({repr(line.cell.get(axis)) for line in lines}) > 1),
        loads=loads,
        warnings=tuple(seen for seen in warnings if seen.key is None),
        failures=tuple(failure for failure in result.failures if failure.key not in keys),
        all_failures=tuple(sorted(struck, key=lambda failure: failure.key in keys)),
    )
    return replace(page, rows=[_make_row(line, page, rules, warnings) for line in lines])


def _make_row(line: Line, page: Page, rules: RowRules, warnings: Sequence[Warning]) -> ViewRow:
    """Make the row of a load with all that is about it; a warning names its launch of several.

    Its name sets it apart from others of the run: `8 clients, num_replicas 2, optimized`."""
    result, profiled, gap = page.result, line.status == "profiled", ""
    found: list[Finding] = []
    if line.status == "not measured":
        gap = line.status
    elif line.status == "partly measured":
        gap = f"{len(line.trials)} of {len(line.keys)} launches measured"
        found.append(Finding("", gap, "doubt"))
    struck = [seen for seen in result.failures if seen.key in line.keys and seen.what != "worker"]
    failures = () if profiled else tuple(struck)
    found += [Finding(failure.message, "failed", "bad") for failure in failures]
    launch = {trial.key: f"launch {trial.round}" for trial in line.trials if line.keys[1:]}
    for seen in warnings:
        of_row = seen.key in line.keys and seen.profiled == profiled
        if of_row and (rules.codes is None or seen.code in rules.codes):
            found.append(warning_finding(seen, launch.get(str(seen.key), "")))
    verdicts = {} if profiled else _judge(line, result, struck, rules)
    causes = [verdict.cause for verdict in verdicts.values()]  # the first of the most frequent
    limit = max(verdicts.values(), key=lambda seen: causes.count(seen.cause), default=None)
    dims = {
        "variant": line.variant,
        **line.cell,
        "row": line.row.label,
        **pick(line.row, "client", "loop", "connections", "rate_per_s", "run"),
        "status": line.status,
        "limit": limit.cause if limit else None,
    }
    varied = {BRIEFS.get(axis, axis): line.cell[axis] for axis in page.axes if axis in line.cell}
    cell, load = cell_title(varied), page.loads[line.row]
    place = [*([cell] if page.axes else []), *([line.variant] if page.variants[1:] else [])]
    words = [load, *place] if len(page.loads) > 1 or not page.axes else place
    mark = " (profiled)" if profiled else ""
    describe = partial(describe_profiled, result=result) if profiled else describe_trial
    facts = (fact for trial in line.trials for fact in describe(trial))
    values = dict(compute_values(line, (*ROW_FIGURES, *rules.figures)))
    if limit is not None and limit.idle is not None:
        values["idle_while_queued"] = Value(limit.idle)
    return ViewRow(
        dims=dims,
        values=values,
        name=f"{', '.join(words)}{mark}",
        warnings=tuple(found),
        notes=tuple(dict.fromkeys(facts)),
        gap=gap,
        line=line,
        cell=cell,
        place=f"{', '.join(place) or load}{mark}",
        trials=line.trials,
        failures=failures,
        verdicts=verdicts,
        limited=limit,
        hint=f"hint, {limit.cause}: {limit.hint}" if limit is not None and limit.hint else "",
    )


def warning_finding(warning: Warning, about: str = "") -> Finding:
    """Return a warning of analysis/checks.py as a finding."""
    return Finding(warning.message, warning.code, "doubt", warning.hint, about)


def _judge(
    line: Line, result: Result, struck: Sequence[Failure], rules: RowRules
) -> Mapping[str, Verdict]:
    """Judge what limited the load in each launch.

    What ended in a cluster explains the figures of a trial of which some requests succeeded."""
    front, verdicts = result.run.asked.front, {}
    place = line.variant, line.cell
    beside = [trial for trial in result.trials if (trial.variant, trial.cell) == place]
    messages = {failure.key: failure.message for failure in struck if failure.what == "trial"}
    for trial in line.trials:
        usage, ended = rules.usage_of(trial), messages.get(trial.key)
        # Where nothing was completed the question is why it failed: full slots are a reason.
        if usage == TrialUsage() or not (answered(trial) or trial.counts.failed.get("rejected")):
            continue
        is_whole = trial.counts.completed and not trial.flags.interrupted
        if ended is not None and is_whole and trial.key in result.broken:
            verdict = Verdict("unclear", "unclear", "none", reasons=(ended,))
        else:
            verdict = limited_by(replace(trial, usage=usage), front, beside, result.launches)
        verdicts[trial.launch] = verdict
    return verdicts


_BY_GRPC: Final = {
    "proxy": ("RAY_SERVE_PROXY_USE_GRPC", "proxy to replicas"),
    "replica": ("RAY_SERVE_USE_GRPC_BY_DEFAULT", "handles"),
}
"""Flags by which proxies and handles send requests to replicas by gRPC, where they are on; by
reference (an object of Ray's store), where they are off. By the role that resolved them."""


def describe_engaged(launches: Sequence[Launch]) -> list[str]:
    """List who serves HTTP, how requests get to replicas, and versions, as launches prove them.

    HAProxy sends requests to the HTTP port of a replica, with no proxy of Serve between."""
    words: list[str] = []
    for proof in (launch.proved for launch in launches):
        owner = proof.port_owner.name if isinstance(proof.port_owner, PortOwner) else ""
        words += [f"HTTP by {owner}"] if owner else []
        for role, (flag, who) in _BY_GRPC.items():
            is_on = proof.flags.get(role, {}).get(flag)
            if is_on is not None and not (role == "proxy" and "haproxy" in owner):
                words.append(f"{who} by {'gRPC' if is_on else 'reference'}")
        words += [f"{name} {value}" for name, value in proof.versions.items() if value]
    return [*dict.fromkeys(words)]
