"""Figures of `serve-bench scale`: the published metrics by their names, with what doubts them.

Pure. Rule: nothing is left out: what was planned and not measured has its size, and a failure
stands with the size it struck, or else with its variant or the run. Metrics are in figures.py and
nodes.py, the fits of a curve in growth.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final

from serve_bench.analysis.checks import Warning, checks
from serve_bench.analysis.statistics import MAIN, Line, summarize
from serve_bench.analysis.verdict import Verdict, limited_by
from serve_bench.benchmarks.scale.figures import ScaleFigure, figures_of
from serve_bench.benchmarks.scale.growth import Grown, grown_of
from serve_bench.benchmarks.scale.nodes import ScaleNode, cpu_of, nodes_of
from serve_bench.benchmarks.scale.request import GRAPHS, invalid_share
from serve_bench.core.errors import FormatError
from serve_bench.core.failed_requests import failures, statuses_of
from serve_bench.core.figures import counted
from serve_bench.core.load_spec import HANDLE
from serve_bench.core.result import Failure, JsonObject, Launch, Result, Run, Trial, cell_slug
from serve_bench.view.document import Finding
from serve_bench.view.inside import GroupedCpu
from serve_bench.view.rows import engaged_of, env_of
from serve_bench.view.texts import limited_line, number

RATE: Final = "cluster_requests_per_s"
"""The figure of a curve's throughput."""

BROKEN: Final = "figures below are of a broken run"


@dataclass(frozen=True)
class Invalid:
    """A row of which too many requests failed, or none was completed. `share` is of 1; `statuses`:
    how often each was seen, where the client knows."""

    launch: int
    row: str
    completed: int
    failed: Mapping[str, int]
    share: float
    statuses: Mapping[int, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """`12 % of the requests failed or timed out (3,000 timed out): figures below are of a
        broken run`."""
        classes = failures(self.failed, self.statuses)
        clause = f" ({classes})" if classes else ""
        if not self.completed:
            return f"no request was completed{clause}: {BROKEN}"
        digits = 0 if 0.0995 <= self.share < 0.995 else 1
        share = f"{100 * self.share:.{digits}f} %"
        return f"{share} of the requests failed or timed out{clause}: {BROKEN}"


@dataclass(frozen=True)
class ScaleSize:
    """One size of the workload under one variant. `launches`: their rounds as planned; `lines`: its
    rows; `nodes`: of every launch, in order; `figures` by name, in the order of a report;
    `warnings` and `failures`: those about it alone."""

    variant: str
    cell: JsonObject
    launches: tuple[int, ...]
    lines: tuple[Line, ...]
    figures: Mapping[str, ScaleFigure]
    nodes: tuple[ScaleNode, ...]
    invalid: tuple[Invalid, ...]
    warnings: tuple[Warning, ...]
    failures: tuple[Failure, ...]

    @property
    def replicas(self) -> int:
        """Of each deployment. Raises FormatError where the cell does not say it."""
        if "num_replicas" not in self.cell:
            raise FormatError(f"cell {dict(self.cell)!r}: has no num_replicas")
        return int(self.cell["num_replicas"])

    @property
    def workload(self) -> str:
        """single, multi, ensemble, chain or curve."""
        return str(self.cell.get("workload", "unknown"))

    @property
    def title(self) -> str:
        """`default, 8 replicas`."""
        return f"{self.variant}, {counted(self.replicas, 'replica')}"

    @property
    def trials(self) -> tuple[Trial, ...]:
        """What was measured, of all rows."""
        return tuple(trial for line in self.lines for trial in line.trials)

    @property
    def keys(self) -> frozenset[str]:
        """The trials that were planned, and those that were measured."""
        return frozenset(key for line in self.lines for key in line.keys)

    @property
    def lost(self) -> tuple[ScaleNode, ...]:
        """Nodes that were lost, of every launch."""
        return tuple(one for one in self.nodes if one.lost is not None)

    @property
    def missing(self) -> int:
        """Planned trials that were not measured."""
        return len(self.keys) - len({trial.key for trial in self.trials})

    @property
    def gap(self) -> str | None:
        """What is missing, in words; None if nothing is."""
        missing, planned = self.missing, len(self.keys)
        if not missing:
            return None
        what = "launches" if len(self.lines) == 1 else "rows"
        return (
            "not measured" if missing == planned else f"{missing} of {planned} {what} not measured"
        )

    def mean(self, name: str) -> float | None:
        """The mean of a figure; None where the size has none of that name, or no value."""
        figure = self.figures.get(name)
        return None if figure is None else figure.mean

    @property
    def limits(self) -> tuple[str, ...]:
        """What limited each of its rows: `HTTP, latency: limited by: host CPU 168 of 200 %`."""
        several = len(self.lines) > 1
        return tuple(
            (f"{short_label(line.row.label)}: " if several else "") + limited_line(verdicts)
            for line in self.lines
            if (verdicts := verdicts_of(line))
        )

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Why it is invalid; what is missing, was lost, failed or is doubted."""
        several, graph = len(self.launches) > 1, len(self.lines) > 1

        def part(launch: int, row: str = "") -> str:
            words = [f"launch {launch}"] if several else []
            return ", ".join([*words, *([row] if row and graph else [])])

        parts = {one.key: part(one.round, short_label(one.row.label)) for one in self.trials}
        findings = [
            Finding(bad.text, "INVALID", "bad", about=part(bad.launch, bad.row))
            for bad in self.invalid
        ]
        findings += [Finding("", self.gap, "doubt")] if self.gap else []
        findings += [
            Finding("", "broken off", "doubt", about=parts[one.key])
            for one in self.trials
            if one.flags.get("interrupted")
        ]
        findings += [_lost(node, part(node.launch)) for node in self.lost]
        findings += [Finding(one.message, "failed", "bad") for one in self.failures]
        findings += [
            Finding(one.message, one.code, "doubt", one.hint, parts.get(one.key or "", ""))
            for one in self.warnings
        ]
        bound = dict.fromkeys(node.ip for node in self.nodes if node.client_bound)
        if bound and not any(one.code == "client-bound" for one in self.warnings):
            text = f"the client was the limit on node {', '.join(bound)}"
            findings.append(Finding(text, "client-bound", "doubt"))
        return tuple(findings)


def _lost(node: ScaleNode, about: str) -> Finding:
    """`lost: node 10.1.0.3 (host3): why; last heard 2.1 s before it was given up: 1,234 completed,
    0 failed`."""
    name = f"{node.ip} ({node.hostname})" if node.hostname else node.ip
    counts = [
        f"{count:,} {word}"
        for count, word in ((node.last_completed, "completed"), (node.last_failed, "failed"))
        if count is not None
    ]
    heard = "never heard"
    if node.age_s is not None:
        heard = f"last heard {number(node.age_s, 2)} s before it was given up"
        heard += f": {', '.join(counts)}" if counts else ""
    counted = f"; {node.failures:,} requests counted as failed" if node.failures else ""
    return Finding(f"node {name}: {node.lost}; {heard}{counted}", "lost", "bad", about=about)


def short_label(label: str) -> str:
    """The name of a row without the clients, which all rows of a graph have in common."""
    _, comma, rest = label.partition(", ")
    return rest if comma else label


def scale_sizes(result: Result, doubts: Sequence[Warning] = ()) -> tuple[ScaleSize, ...]:
    """Every size that was planned or measured, by variant in the order of the plan, then by
    replicas. `doubts`: of all trials. Raises FormatError when a stored histogram cannot be read."""
    lines = scale_lines(result)
    order = list(dict.fromkeys(line.variant for line in lines))
    rounds = {planned.key: planned.round for planned in result.run.plan}
    rounds |= {trial.key: trial.round for trial in result.trials}

    def place(line: Line) -> tuple[int, int, str]:
        replicas = int(line.cell.get("num_replicas", 0))
        return order.index(line.variant), replicas, cell_slug(line.cell)

    return tuple(
        _size(list(own), rounds, doubts, result.failures)
        for _, own in groupby(sorted(lines, key=place), key=place)
    )


def scale_lines(result: Result) -> tuple[Line, ...]:
    """The rows over launches, profiled ones left out.

    How many nodes load is known only once a cluster is up, so a trial's row may have more
    connections than the planned one, and differ between launches: rows are told apart as planned.
    """
    rows = {planned.key: planned.row for planned in result.run.plan}
    own = {trial.key: trial for trial in result.trials}
    alike = [replace(one, row=rows.get(one.key, one.row)) for one in result.trials]
    return tuple(
        replace(line, trials=tuple(own[trial.key] for trial in line.trials))
        for line in summarize(replace(result, trials=tuple(alike), profiled=()))
    )


def _size(
    lines: Sequence[Line],
    rounds: Mapping[str, int],
    doubts: Sequence[Warning],
    failures: Sequence[Failure],
) -> ScaleSize:
    """A size of these rows, with the doubts and failures that are about it alone."""
    variant, cell, slug = lines[0].variant, lines[0].cell, cell_slug(lines[0].cell)
    keys = {key for line in lines for key in line.keys}
    launches = tuple(sorted({rounds[key] for key in keys}))
    trials = [trial for line in lines for trial in line.trials]
    invalid = {trial.key: bad for trial in trials if (bad := _invalid(trial)) is not None}
    graph = cell.get("workload") in GRAPHS
    return ScaleSize(
        variant=variant,
        cell=cell,
        launches=launches,
        lines=tuple(lines),
        figures=figures_of(lines, launches),
        nodes=tuple(
            node for trial in sorted(trials, key=lambda one: one.round) for node in nodes_of(trial)
        ),
        invalid=tuple(invalid.values()),
        warnings=tuple(
            one
            for one in doubts
            if one.key in keys
            and not one.profiled
            and not (one.key in invalid and one.code == "errors")  # that it is invalid says so
            # Nothing rare is shown of a graph's sequential requests: a mean, a std, p50 and p90.
            and not (graph and one.code == "few-samples")
        ),
        # What a worker lost is among the doubts.
        failures=tuple(
            one
            for one in failures
            if (one.key in keys and one.what != "worker")
            or (
                one.key is None
                and one.variant == variant
                and one.cell is not None
                and cell_slug(one.cell) == slug
            )
        ),
    )


def verdicts_of(line: Line) -> tuple[Verdict, ...]:
    """What limited a row in each launch, where HTTP loaded it from one node. Of several nodes the
    verdict, which weighs one machine's processes against the whole load, would be wrong; so it
    would where the client of a handle is a process that it does not know."""
    if not any(MAIN in trial.metrics for trial in line.trials):
        return ()
    return tuple(
        limited_by(replace(trial, usage=usages[0]))
        for trial in line.trials
        if trial.row.client != HANDLE
        and len(nodes_of(trial)) < 2
        and (usages := usages_of(trial))
        and trial.counts.completed
    )


def usages_of(trial: Trial) -> list[Mapping[str, Any]]:
    """What was sampled in a trial: on its only node, or else on the machine of the tool."""
    nodes = nodes_of(trial)
    own = nodes[0].usage if len(nodes) == 1 and nodes[0].usage else trial.usage
    return [own] if own else []


def _invalid(trial: Trial) -> Invalid | None:
    """Why the figures of a trial are those of a broken run; None where they are not."""
    counts = trial.counts
    share = invalid_share(counts.completed, counts.failed_total)
    if share is None and not trial.flags.get("invalid"):
        return None
    requests = counts.completed + counts.failed_total
    return Invalid(
        trial.round,
        trial.row.label,
        counts.completed,
        {name: count for name, count in counts.failed.items() if count},
        counts.failed_total / requests if requests else 1.0,
        statuses_of(trial),
    )


@dataclass(frozen=True)
class ScaleVariant:
    """One variant: its flags, what its launches prove, its sizes and, of a curve, how each quantity
    grows. `unloaded`: the nodes that no load came from, and why."""

    name: str
    env: tuple[str, ...]
    engaged: str
    warnings: tuple[Warning, ...]
    failures: tuple[Failure, ...]
    sizes: tuple[ScaleSize, ...]
    grown: tuple[Grown, ...]
    unloaded: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowCpu:
    """CPU of a row of a size, mean over its launches, and what limited it in each of them."""

    size: ScaleSize
    line: Line
    cpu: GroupedCpu
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True)
class ScaleSummary:
    """A whole run. `warnings` and `failures`: those about no single variant."""

    run: Run
    workload: str
    variants: tuple[ScaleVariant, ...]
    warnings: tuple[Warning, ...]
    failures: tuple[Failure, ...]
    not_measured: tuple[str, ...]

    @property
    def sizes(self) -> tuple[ScaleSize, ...]:
        return tuple(size for part in self.variants for size in part.sizes)

    @property
    def curve(self) -> bool:
        """Whether one deployment was measured at several sizes."""
        return self.workload == "curve"

    @property
    def graph(self) -> bool:
        """Whether the workload is one of composed deployments."""
        return self.workload in GRAPHS

    @property
    def several_launches(self) -> bool:
        """Whether any size was to be measured in more than one launch."""
        return any(len(one.launches) > 1 for one in self.sizes)

    @property
    def invalid(self) -> tuple[str, ...]:
        """The lines that call the result invalid."""
        return self.invalid_in(self.sizes)

    def invalid_in(self, sizes: Iterable[ScaleSize]) -> tuple[str, ...]:
        """Those of some of its sizes: `INVALID, default, 8 replicas, launch 1: why`."""
        lines = []
        for size in sizes:
            for bad in size.invalid:
                names = [size.title] if len(self.sizes) > 1 else []
                names += [f"launch {bad.launch}"] if self.several_launches else []
                names += [bad.row] if self.graph else []
                lines.append(f"{', '.join(('INVALID', *names))}: {bad.text}")
        return tuple(lines)

    @property
    def sampled(self) -> tuple[RowCpu, ...]:
        """CPU of each row that was sampled on one machine."""
        return tuple(
            RowCpu(size, line, cpu, verdicts_of(line))
            for size in self.sizes
            for line in size.lines
            if all(one.usage or len(nodes_of(one)) < 2 for one in line.trials)
            and (cpu := cpu_of([usage for one in line.trials for usage in usages_of(one)]))
        )


def scale_summary(result: Result) -> ScaleSummary:
    """Figures, doubts and failures of a run, profiled rows left out. Raises FormatError when a
    stored histogram cannot be read."""
    doubts = checks(result)
    sizes = scale_sizes(result, doubts)
    workload = str(result.run.suite.get("workload") or (sizes[0].workload if sizes else ""))
    names = list(dict.fromkeys(one.variant for one in sizes))
    keys = {key for one in sizes for key in one.keys}
    return ScaleSummary(
        run=result.run,
        workload=workload,
        variants=tuple(
            _variant(
                result,
                tuple(one for one in sizes if one.variant == name),
                tuple(one for one in doubts if one.variant == name),
                workload == "curve",
            )
            for name in names
        ),
        warnings=tuple(one for one in doubts if one.key is None and one.variant is None),
        failures=tuple(
            one for one in result.failures if one.key not in keys and one.variant not in names
        ),
        not_measured=tuple(one.key for one in result.missing),
    )


def _variant(
    result: Result, sizes: tuple[ScaleSize, ...], warnings: tuple[Warning, ...], curve: bool
) -> ScaleVariant:
    name = sizes[0].variant
    launches = [launch for launch in result.launches if launch.variant.name == name]
    placed = [failure for size in sizes for failure in size.failures]
    keys = {key for one in sizes for key in one.keys}
    return ScaleVariant(
        name=name,
        env=env_of(name, result, launches),
        engaged=engaged_of(launches),
        warnings=warnings,
        # What a worker lost is among the doubts of its size.
        failures=tuple(
            one
            for one in result.failures
            if one.variant == name
            and one not in placed
            and not (one.what == "worker" and one.key in keys)
        ),
        sizes=sizes,
        grown=grown_of([(one.replicas, one.figures) for one in sizes]) if curve else (),
        unloaded=() if sizes[0].workload in GRAPHS else _unloaded(launches),
    )


def _unloaded(launches: Sequence[Launch]) -> tuple[str, ...]:
    """The nodes that no load came from: those that had no healthy proxy of their own, and why."""
    lines: dict[str, None] = {}
    for launch in launches:
        for one in launch.proof.get("proxies", ()):
            if one["status"] == "HEALTHY" and not one.get("shared_with"):
                continue
            which = f", launch {launch.id}" if len(launches) > 1 else ""
            why = one.get("why") or f"its proxy is {one['status']}"
            lines[f"node {one['node_ip']} {one['node_id'][:6]}{which}: not loaded: {why}"] = None
    return tuple(lines)
