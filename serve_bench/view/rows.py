"""What a report shows, in order: variants, their cells, the rows of each with what doubts them.

Rule: all that belongs together is joined here once; a form of report only lays it out. Nothing is
left out: what was planned and not measured has its entry too, and a failure stands where it
struck (variant, cell or row). No layout, no colour here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, TypeAlias

from serve_bench.analysis.checks import Warning, checks
from serve_bench.analysis.statistics import MAIN, Line, Spread, answered, summarize, variants
from serve_bench.analysis.verdict import Verdict, limited_by, prevailing
from serve_bench.core.result import Failure, JsonObject, Launch, Result, Trial, cell_slug
from serve_bench.view.document import Finding
from serve_bench.view.inside import facts, profiling_costs, served_facts
from serve_bench.view.published import Published, published_for
from serve_bench.view.texts import limited_line

NS_PER_MS: Final = 1e6


@dataclass(frozen=True)
class Entry:
    """One row, with the doubts and failures that are about it alone."""

    line: Line
    warnings: tuple[Warning, ...]
    failures: tuple[Failure, ...]
    published: Published | None = None
    facts: tuple[str, ...] = ()  # lines that are neither a doubt nor a failure
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)  # by launch, where sampled

    @property
    def rate(self) -> Spread | None:
        """The throughput, if it was measured."""
        return self.line.spreads.get(MAIN)

    @property
    def limited(self) -> Verdict | None:
        """What limited the row, in most of its launches; None where CPU was not sampled."""
        return prevailing(tuple(self.verdicts.values())) if self.verdicts else None

    @property
    def label(self) -> str:
        """The name of the row, marked if a profiler was attached."""
        return f"{self.line.row.label}{' (profiled)' if self.line.status == 'profiled' else ''}"

    @property
    def gap(self) -> str | None:
        """What is missing of the row, in words; None if nothing is."""
        if self.line.status == "partly measured":
            return f"{len(self.line.trials)} of {len(self.line.keys)} launches measured"
        return "not measured" if self.line.status == "not measured" else None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is missing in part, what failed and what is doubted; of several launches a doubt
        says which one."""
        line = self.line
        rounds = {trial.key: trial.round for trial in line.trials} if len(line.keys) > 1 else {}
        launch = {key: f"launch {number}" for key, number in rounds.items()}
        partly = line.status == "partly measured"
        return (
            *([Finding("", self.gap or "", "doubt")] if partly else []),
            *(Finding(failure.message, "failed", "bad") for failure in self.failures),
            *(warning_finding(seen, launch.get(seen.key or "", "")) for seen in self.warnings),
        )


def warning_finding(warning: Warning, about: str = "") -> Finding:
    """A warning of analysis/checks.py as a finding."""
    return Finding(warning.message, warning.code, "doubt", warning.hint, about)


@dataclass(frozen=True)
class CellPart:
    """One cell of a variant."""

    cell: JsonObject
    failures: tuple[Failure, ...]
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class VariantPart:
    """One variant: its flags, what the proof of its launches says, and its cells."""

    name: str
    env: tuple[str, ...]
    engaged: str
    owners: tuple[str, ...]  # "HTTP by haproxy", "handles by gRPC"
    warnings: tuple[Warning, ...]
    failures: tuple[Failure, ...]
    cells: tuple[CellPart, ...]

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(entry for part in self.cells for entry in part.entries)


@dataclass(frozen=True)
class Page:
    """A whole run as it is to be shown. `base` is the variant of the ratios, if there are any."""

    variants: tuple[VariantPart, ...]
    warnings: tuple[Warning, ...]
    failures: tuple[Failure, ...]
    base: str | None
    launches: int
    notes: tuple[str, ...]
    where: str | None

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(entry for part in self.variants for entry in part.entries)

    @property
    def all_failures(self) -> tuple[Failure, ...]:
        """Those of the run, then of each variant with its cells and rows."""
        failures = list(self.failures)
        for variant in self.variants:
            failures += variant.failures
            for cell in variant.cells:
                failures += cell.failures
                failures += (failure for entry in cell.entries for failure in entry.failures)
        return tuple(failures)


UsageOf: TypeAlias = Callable[[Trial], Mapping[str, Any]]
"""What was sampled by which the limit of a trial is judged; empty: it is not judged."""


def page_of(
    result: Result,
    *,
    published: bool = False,
    where: str | None = None,
    usage_of: UsageOf = lambda trial: trial.usage,
) -> Page:
    """Join figures, doubts, failures and, if wanted, published figures."""
    lines, warnings = summarize(result), checks(result)
    names = variants(result)
    parts = []
    for name in names:
        mine = [line for line in lines if line.variant == name]
        cells = []
        for _, group in groupby(mine, key=lambda line: cell_slug(line.cell)):
            rows = list(group)
            beside = [trial for line in rows for trial in line.trials]
            entries = tuple(
                _entry(line, result, warnings, beside, published, usage_of) for line in rows
            )
            struck = _failures_of(result, name, rows[0].cell)
            cells.append(CellPart(rows[0].cell, struck, entries))
        launches = [launch for launch in result.launches if launch.variant.name == name]
        parts.append(
            VariantPart(
                name=name,
                env=env_of(name, result, launches),
                engaged=engaged_of(launches),
                owners=owners_of(launches),
                warnings=tuple(seen for seen in warnings if seen.variant == name),
                failures=_failures_of(result, name, None),
                cells=tuple(cells),
            )
        )
    keys = {key for line in lines for key in line.keys}
    placed = [
        failure
        for part in parts
        for failures in (part.failures, *(cell.failures for cell in part.cells))
        for failure in failures
    ]
    spreads = [spread for line in lines for spread in line.spreads.values()]
    return Page(
        variants=tuple(parts),
        warnings=tuple(seen for seen in warnings if seen.key is None and seen.variant is None),
        failures=tuple(
            failure
            for failure in result.failures
            if failure.key not in keys and failure not in placed
        ),
        base=names[0] if len(names) > 1 else None,
        launches=max((spread.launches for spread in spreads), default=0),
        notes=tuple(_notes(result, lines, parts)),
        where=where,
    )


def _notes(result: Result, lines: Sequence[Line], parts: Sequence[VariantPart]) -> Iterator[str]:
    """How the figures were got, and what to try against each cause that limited a row."""
    windows = {
        (len(trial.metrics[MAIN].windows or ()), trial.window_s)
        for trial in result.trials
        if MAIN in trial.metrics and trial.metrics[MAIN].windows is not None
    }
    if windows:
        shown = " or ".join(f"{count} x {length:g} s" for count, length in sorted(windows))
        yield f"requests/s: mean ± std (ddof 0) over windows, {shown}; latency in ms"
    if any(line.status == "profiled" for line in lines):
        yield "profiled rows were slowed by the profiler and enter no mean and no ratio"
    absent = [
        trial.serve_metrics.get("why")
        for trial in result.trials
        if trial.serve_metrics.get("status") == "absent"
    ]
    if absent:
        yield f"Serve's own metrics are absent in {len(absent)} trials: {absent[0]}"
    limits = [entry.limited for part in parts for entry in part.entries]
    yield from dict.fromkeys(f"hint, {limit.cause}: {limit.hint}" for limit in limits if limit)
    if (place := result.run.suite.get("load_on")) is not None:
        whose = place.get("address") or "that is measured"
        yield f"load: from actors on nodes of a Ray cluster ({whose})"


def _failures_of(result: Result, variant: str, cell: JsonObject | None) -> tuple[Failure, ...]:
    """The failures of a variant as a whole, or of one of its cells as a whole."""
    slug = None if cell is None else cell_slug(cell)
    return tuple(
        failure
        for failure in result.failures
        if failure.variant == variant
        and failure.key is None
        and (None if failure.cell is None else cell_slug(failure.cell)) == slug
    )


def _entry(
    line: Line,
    result: Result,
    warnings: Iterable[Warning],
    beside: Sequence[Trial],
    published: bool,
    usage_of: UsageOf,
) -> Entry:
    """A row with all that is about it. `beside`: the trials of its cell."""
    profiled = line.status == "profiled"
    front = front_of(result.run.suite)
    # Where nothing was completed the question is why it failed: full slots are a reason.
    verdicts = {
        trial.launch: limited_by(replace(trial, usage=usage), front, beside=beside)
        for trial in (() if profiled else line.trials)
        if (usage := usage_of(trial)) and (answered(trial) or trial.counts.failed.get("rejected"))
    }
    if profiled:
        costs = profiling_costs(result)
        notes = [fact for trial in line.trials for fact in facts(trial, costs)]
    else:
        notes = [limited_line(tuple(verdicts.values()))] if verdicts else []
        stretched = (trial.client.get("stretched") for trial in line.trials)
        notes += dict.fromkeys(str(words) for words in stretched if words)
        notes += served_facts(line.trials, line.cell.get("max_batch_size", 1))
    struck = (seen for seen in result.failures if seen.key in line.keys and seen.what != "worker")
    return Entry(
        line=line,
        warnings=tuple(
            seen for seen in warnings if seen.key in line.keys and seen.profiled == profiled
        ),
        failures=() if profiled else tuple(struck),
        published=published_for(line.cell, line.row) if published else None,
        facts=tuple(notes),
        verdicts=verdicts,
    )


def front_of(suite: Mapping[str, Any]) -> str | None:
    """The ingress of an app of the user's own, with the name of the app where the suite has it; of
    the others it is inferred."""
    app = suite.get("app")
    if not isinstance(app, dict) or not app.get("deployments"):
        return None
    ingress, name = str(app["deployments"][-1]["name"]), app.get("config", {}).get("name")
    return ingress if name is None else f"{name}:{ingress}"


def env_of(name: str, result: Result, launches: list[Launch]) -> tuple[str, ...]:
    """The flags of a variant: of its launches, or as the suite has them if none succeeded."""
    if launches:
        env = launches[0].variant.env
        return tuple(f"{key}={value}" for key, value in env.items())
    for planned in result.run.suite.get("variants", ()):
        if isinstance(planned, dict) and planned.get("name") == name:
            return tuple(f"{key}={value}" for key, value in planned.get("env", {}).items())
    return ()


def engaged_of(launches: Sequence[Launch]) -> str:
    """Who serves HTTP and which versions run, as the proof of the launches says."""
    words: list[str] = []
    for launch in launches:
        words += owners_of([launch])
        versions = launch.proof.get("versions") or {}
        words += [f"{name} {value}" for name, value in versions.items() if value]
    return ", ".join(dict.fromkeys(words))


_BY_GRPC: Final = {
    "proxy": ("RAY_SERVE_PROXY_USE_GRPC", "proxy to replicas"),
    "replica": ("RAY_SERVE_USE_GRPC_BY_DEFAULT", "handles"),
}
"""Flags by which proxies and handles send requests to replicas by gRPC, where they are on; by
reference (an object of Ray's store), where they are off. By the role that resolved them."""


def owners_of(launches: Sequence[Launch]) -> tuple[str, ...]:
    """Who serves HTTP, and how requests get to replicas, as the proof of the launches says. HAProxy
    sends them to the HTTP port of a replica: there is no proxy of Serve on their way."""
    ways = []
    for launch in launches:
        owner = launch.proof.get("port_owner")
        name = owner.get("name") if isinstance(owner, dict) else owner
        ways += [] if owner is None else [f"HTTP by {name}"]
        for role, (flag, who) in _BY_GRPC.items():
            flags = launch.proof.get("flags", {}).get(role, {})
            if flag in flags and not (role == "proxy" and "haproxy" in str(name)):
                ways.append(f"{who} by {'gRPC' if flags[flag] else 'reference'}")
    return tuple(dict.fromkeys(ways))
