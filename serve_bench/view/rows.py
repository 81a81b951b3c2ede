"""What a report shows, in order: variants, their cells, the rows of each with what doubts them.

Rule: all that belongs together is joined here once; a form of report only lays it out. Nothing is
left out: what was planned and not measured has its entry too, and a failure stands where it
struck (variant, cell or row). No layout, no colour here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, TypeAlias

from serve_bench.analysis.checks import Warning, checks
from serve_bench.analysis.statistics import MAIN, Line, Spread, answered, summarize, variants
from serve_bench.analysis.verdict import Verdict, limited_by, prevailing
from serve_bench.core.result import Failure, JsonObject, Launch, Result, Trial, cell_slug
from serve_bench.view.document import Finding
from serve_bench.view.inside import facts, metrics_note, profiling_costs, served_facts
from serve_bench.view.published import Published, published_for, published_notes
from serve_bench.view.texts import limited_line

NS_PER_MS: Final = 1e6

PROFILED: Final = "profiled rows were slowed by the profiler and enter no mean and no ratio"


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
    def lower_bounds(self) -> tuple[str, ...]:
        """The figures of the latency of which no more is known than that they are above."""
        latency = self.line.distributions.get("latency")
        return () if latency is None else latency.lower_bounds

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
            *(
                Finding(
                    doubt.message, doubt.code, "doubt", doubt.hint, launch.get(doubt.key or "", "")
                )
                for doubt in self.warnings
            ),
        )


@dataclass(frozen=True)
class CellPart:
    """One cell of a variant."""

    cell: JsonObject
    failures: tuple[Failure, ...]
    entries: tuple[Entry, ...]


def _cell_failures(cell: CellPart) -> tuple[Failure, ...]:
    rows = (failure for entry in cell.entries for failure in entry.failures)
    return (*cell.failures, *rows)


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
        return (
            *self.failures,
            *(
                failure
                for part in self.variants
                for failures in (part.failures, *map(_cell_failures, part.cells))
                for failure in failures
            ),
        )

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes that the cells name, in the order in which they first appear."""
        return tuple(dict.fromkeys(name for entry in self.entries for name in entry.line.cell))


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
    lines, doubts = summarize(result), checks(result)
    names = variants(result)
    parts = tuple(_variant(name, result, lines, doubts, published, usage_of) for name in names)
    planned = [line for line in lines if line.status != "profiled"]
    missing = [line for line in planned if line.status != "measured"]
    notes = list(_method(lines))
    if len(names) > 1:
        notes.append(f"ratio: requests/s to those of the same row under {names[0]}")
    absent = metrics_note(result)
    if absent is not None:
        notes.append(absent)
    notes += _hints(parts)
    if (place := result.run.suite.get("load_on")) is not None:
        whose = place.get("address") or "that is measured"
        notes.append(f"load: from actors on nodes of a Ray cluster ({whose})")
    if missing:
        notes.append(f"incomplete: {len(missing)} of {len(planned)} rows")
    return Page(
        variants=parts,
        warnings=tuple(one for one in doubts if one.key is None and one.variant is None),
        failures=tuple(one for one in result.failures if not _has_a_place(one, lines)),
        base=names[0] if len(names) > 1 else None,
        launches=max(
            (spread.launches for line in lines for spread in line.spreads.values()), default=0
        ),
        notes=(*notes, *(published_notes(result.run.command) if published else ())),
        where=where,
    )


def _variant(
    name: str,
    result: Result,
    lines: Iterable[Line],
    doubts: Iterable[Warning],
    published: bool,
    usage_of: UsageOf,
) -> VariantPart:
    launches = [launch for launch in result.launches if launch.variant.name == name]
    failures = [failure for failure in result.failures if failure.variant in (None, name)]
    own = [line for line in lines if line.variant == name]
    costs, front = profiling_costs(result), front_of(result.run.suite)
    parts = []
    for slug, group in groupby(own, key=lambda line: cell_slug(line.cell)):
        lines_of_cell = tuple(group)
        ladder = [trial for line in lines_of_cell for trial in line.trials]
        entries = tuple(
            _entry(line, doubts, failures, published, costs, ladder, usage_of, front)
            for line in lines_of_cell
        )
        struck = [
            failure
            for failure in failures
            if failure.key is None
            and failure.cell is not None
            and failure.variant == name
            and cell_slug(failure.cell) == slug
        ]
        parts.append(CellPart(entries[0].line.cell, tuple(struck), entries))
    return VariantPart(
        name=name,
        env=env_of(name, result, launches),
        engaged=engaged_of(launches),
        owners=owners_of(launches),
        warnings=tuple(one for one in doubts if one.variant == name),
        failures=tuple(
            one for one in failures if one.variant == name and one.key is None and one.cell is None
        ),
        cells=tuple(parts),
    )


def _entry(
    line: Line,
    doubts: Iterable[Warning],
    failures: Iterable[Failure],
    published: bool,
    costs: Mapping[str, str],
    ladder: Sequence[Trial],
    usage_of: UsageOf,
    front: str | None = None,
) -> Entry:
    """A row with all that is about it; `ladder` holds the trials of its cell, `front` names the
    deployment that HTTP meets where that is known."""
    profiled = line.status == "profiled"
    struck = (one for one in failures if one.key in line.keys and one.what != "worker")
    own = (one for one in doubts if one.key in line.keys and one.profiled == profiled)
    # Where nothing was completed the question is why it failed: full slots are a reason.
    verdicts = {
        trial.launch: limited_by(replace(trial, usage=usage), front, beside=ladder)
        for trial in (() if profiled else line.trials)
        if (usage := usage_of(trial)) and (answered(trial) or trial.counts.failed.get("rejected"))
    }
    return Entry(
        line=line,
        warnings=tuple(own),
        failures=() if profiled else tuple(struck),
        published=published_for(line.cell, line.row) if published else None,
        facts=tuple(fact for trial in line.trials for fact in facts(trial, costs))
        if profiled
        else (
            *([limited_line(tuple(verdicts.values()))] if verdicts else ()),
            *dict.fromkeys(filter(None, (trial.client.get("stretched") for trial in line.trials))),
            *served_facts(line.trials, line.cell.get("max_batch_size", 1)),
        ),
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


def _has_a_place(failure: Failure, lines: Iterable[Line]) -> bool:
    """Whether a row, a cell or a variant of the page shows the failure."""
    if failure.key is not None:
        return any(failure.key in line.keys for line in lines)
    return any(
        failure.variant == line.variant
        and (failure.cell is None or cell_slug(failure.cell) == cell_slug(line.cell))
        for line in lines
    )


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


#: Flags by which proxies and handles send requests to replicas by gRPC, where they are on; by
#: reference (an object of Ray's store), where they are off. By the role that resolved them.
_BY_GRPC: Final = {
    "proxy": ("RAY_SERVE_PROXY_USE_GRPC", "proxy to replicas"),
    "replica": ("RAY_SERVE_USE_GRPC_BY_DEFAULT", "handles"),
}


def owners_of(launches: Sequence[Launch]) -> tuple[str, ...]:
    """Who serves HTTP, and how requests get to replicas, as the proof of the launches says. HAProxy
    sends them to the HTTP port of a replica: there is no proxy of Serve on their way."""
    owners: list[Any] = [one.proof.get("port_owner") for one in launches]
    names = [one.get("name") if isinstance(one, dict) else one for one in owners if one is not None]
    ways = [f"HTTP by {name}" for name in names]
    direct = any(name is not None and "haproxy" in name for name in names)
    for role, (flag, who) in _BY_GRPC.items():
        for launch in launches if role != "proxy" or not direct else ():
            flags = launch.proof.get("flags", {}).get(role, {})
            if flag in flags:
                ways.append(f"{who} by {'gRPC' if flags[flag] else 'reference'}")
    return tuple(dict.fromkeys(ways))


def _hints(parts: Sequence[VariantPart]) -> Iterable[str]:
    """What to try against each cause that limited a row, once for each thing to try."""
    limits = [entry.limited for part in parts for entry in part.entries]
    return dict.fromkeys(f"hint, {one.cause}: {one.hint}" for one in limits if one is not None)


def _method(lines: Sequence[Line]) -> Iterable[str]:
    shapes = {
        (len(metric.windows), trial.window_s)
        for line in lines
        for trial in line.trials
        if not trial.profiled
        and (metric := trial.metrics.get(MAIN)) is not None
        and metric.windows is not None
    }
    if shapes:
        shown = " or ".join(f"{count} x {length:g} s" for count, length in sorted(shapes))
        yield f"requests/s: mean ± std (ddof 0) over windows, {shown}; latency in ms"
    if any(line.status == "profiled" for line in lines):
        yield PROFILED
