"""What a report of scale shows, joined once: each size under each variant with what doubts it.

Rule: nothing is left out: what was planned and not measured has its entry, a failure stands with
the size it struck, or else with its variant or the run. Figures come from
benchmarks/scale/summary.py; no layout here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from serve_bench.analysis.checks import Warning, checks
from serve_bench.analysis.statistics import MAIN
from serve_bench.analysis.verdict import limited_by
from serve_bench.benchmarks.parts.page import engaged_of, env_of
from serve_bench.benchmarks.parts.published import scale_notes, scale_published
from serve_bench.benchmarks.parts.texts import host_line, limited_line
from serve_bench.benchmarks.scale.nodes import NodeUse, nodes_of, use_of
from serve_bench.benchmarks.scale.request import GRAPHS
from serve_bench.benchmarks.scale.summary import Grown, ScaleSize, growths, scale_sizes
from serve_bench.benchmarks.scale.words import (
    invalid_line,
    lost_line,
    replicas_words,
    short_label,
    unloaded,
)
from serve_bench.core.document import Finding, sentences
from serve_bench.core.load_spec import HANDLE
from serve_bench.core.result import Failure, Result, Run, Trial, cell_slug

_SAID_OTHERWISE: Final = frozenset({"errors"})
"""Doubts about an invalid row that the line which calls it so already holds."""


@dataclass(frozen=True)
class ScaleEntry:
    """One size under one variant, with the doubts and failures that are about it alone."""

    size: ScaleSize
    warnings: tuple[Warning, ...]
    failures: tuple[Failure, ...]
    limits: tuple[str, ...]

    @property
    def title(self) -> str:
        """`default, 8 replicas`."""
        return f"{self.size.variant}, {replicas_words(self.size.replicas)}"

    @property
    def measured(self) -> bool:
        """Whether any of its rows was."""
        return bool(self.size.trials)

    @property
    def gap(self) -> str | None:
        """What is missing, in words; None if nothing is."""
        missing, planned = self.size.missing, len(self.size.keys)
        if not missing:
            return None
        what = "launches" if len(self.size.lines) == 1 else "rows"
        return (
            "not measured" if missing == planned else f"{missing} of {planned} {what} not measured"
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """Its findings, one line each."""
        return tuple(one.line for one in self.findings)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is missing, what was lost, what failed and what is doubted."""
        several = len(self.size.launches) > 1
        rows = {trial.key: trial for trial in self.size.trials}
        said = [Finding("", self.gap, "doubt")] if self.gap else []
        said += sentences((lost_line(one, several) for one in self.size.lost), "doubt")
        said += [Finding(one.message, "failed", "bad") for one in self.failures]
        for one in self.warnings:
            part = _of(rows.get(one.key or ""), several, len(self.size.lines) > 1)
            said.append(Finding(one.message, one.code, "doubt", one.hint, part))
        bound = {
            one.ip: None
            for one in self.size.nodes
            if one.client_bound and not any(w.code == "client-bound" for w in self.warnings)
        }
        if bound:
            text = f"the client was the limit on node {', '.join(bound)}"
            said.append(Finding(text, "client-bound", "doubt"))
        return tuple(said)


def _of(trial: Trial | None, launches: bool, rows: bool) -> str:
    words = [] if trial is None or not launches else [f"launch {trial.round}"]
    words += [short_label(trial)] if trial is not None and rows else []
    return ", ".join(words)


@dataclass(frozen=True)
class ScaleVariant:
    """One variant: its flags, what the proof of its launches says, its sizes and, of a curve, how
    each quantity grows."""

    name: str
    env: tuple[str, ...]
    engaged: str
    warnings: tuple[Warning, ...]
    failures: tuple[Failure, ...]
    entries: tuple[ScaleEntry, ...]
    grown: tuple[Grown, ...]
    unloaded: tuple[str, ...] = ()  # nodes without a proxy of their own, and why


@dataclass(frozen=True)
class ScalePage:
    """A whole run. `published`: what Ray publishes for the workload, if wanted and there is any;
    `notes` say where it comes from, or that there is none."""

    run: Run
    workload: str
    variants: tuple[ScaleVariant, ...]
    warnings: tuple[Warning, ...]
    failures: tuple[Failure, ...]
    not_measured: tuple[str, ...]
    host: str
    published: Mapping[str, Any] | None
    notes: tuple[str, ...]
    where: str | None

    @property
    def title(self) -> str:
        """One line that names the run."""
        return f"serve-bench {self.run.command}, {self.run.started_at}, run {self.run.id}"

    @property
    def entries(self) -> tuple[ScaleEntry, ...]:
        """The sizes of all variants."""
        return tuple(entry for part in self.variants for entry in part.entries)

    @property
    def graph(self) -> bool:
        """Whether the workload is one of composed deployments."""
        return self.workload in GRAPHS

    @property
    def several_launches(self) -> bool:
        """Whether any size was to be measured in more than one launch."""
        return any(len(one.size.launches) > 1 for one in self.entries)

    @property
    def invalid(self) -> tuple[str, ...]:
        """The lines that call the result invalid."""
        return self.invalid_in(self.entries)

    def invalid_in(self, entries: Sequence[ScaleEntry]) -> tuple[str, ...]:
        """Those of some of its sizes."""
        said = []
        for entry in entries:
            for bad in entry.size.invalid:
                names = [entry.title] if len(self.entries) > 1 else []
                names += [f"launch {bad.launch}"] if self.several_launches else []
                names += [bad.row] if self.graph else []
                said.append(invalid_line(bad, "".join(f", {one}" for one in names)))
        return tuple(said)

    @property
    def sampled(self) -> bool:
        """Whether nodes told what their processes used."""
        return any(node.usage for entry in self.entries for node in entry.size.nodes)

    @property
    def uses(self) -> tuple[tuple[str, NodeUse], ...]:
        """CPU of each row that was sampled on one machine, over its launches, with its name."""
        found = []
        for entry in self.entries:
            for line in entry.size.lines:
                use = use_of([one for trial in line.trials for one in usages_of(trial)])
                names = [entry.title] if len(self.entries) > 1 else []
                names += [short_label(line)] if len(entry.size.lines) > 1 else []
                here = all(one.usage or len(nodes_of(one)) < 2 for one in line.trials)
                if use is not None and here:
                    found.append((", ".join(names), use))
        return tuple(found)


def usages_of(trial: Trial) -> list[Mapping[str, Any]]:
    """What was sampled in a trial: on its only node, or else on the machine of the tool."""
    nodes = nodes_of(trial)
    own = nodes[0].usage if len(nodes) == 1 and nodes[0].usage else trial.usage
    return [own] if own else []


def scale_page(result: Result, published: bool = False, where: str | None = None) -> ScalePage:
    """Join figures, doubts and failures of a run; with `published` what Ray publishes."""
    sizes, doubts = scale_sizes(result), checks(result)
    workload = str(result.run.suite.get("workload") or (sizes[0].workload if sizes else ""))
    grown = growths(sizes) if workload == "curve" else {}
    names = list(dict.fromkeys(one.variant for one in sizes))
    keys = {key for one in sizes for key in one.keys}
    return ScalePage(
        run=result.run,
        workload=workload,
        variants=tuple(_variant(name, result, sizes, doubts, grown) for name in names),
        warnings=tuple(one for one in doubts if one.key is None and one.variant is None),
        failures=tuple(
            one for one in result.failures if one.key not in keys and one.variant not in names
        ),
        not_measured=tuple(one.key for one in result.missing),
        host=host_line(result.run.host),
        published=scale_published(workload) if published else None,
        notes=scale_notes(workload) if published else (),
        where=where,
    )


def _variant(
    name: str,
    result: Result,
    sizes: Sequence[ScaleSize],
    doubts: Sequence[Warning],
    grown: Mapping[str, tuple[Grown, ...]],
) -> ScaleVariant:
    launches = [launch for launch in result.launches if launch.variant.name == name]
    own = [one for one in sizes if one.variant == name]
    struck = [one for one in result.failures if one.variant == name]
    entries = tuple(_entry(one, doubts, result.failures) for one in own)
    placed = [failure for entry in entries for failure in entry.failures]
    keys = {key for one in own for key in one.keys}
    return ScaleVariant(
        name=name,
        env=env_of(name, result, launches),
        engaged=engaged_of(launches),
        warnings=tuple(one for one in doubts if one.variant == name),
        # What a worker lost is among the doubts of its size.
        failures=tuple(
            one
            for one in struck
            if one not in placed and not (one.what == "worker" and one.key in keys)
        ),
        entries=entries,
        grown=grown.get(name, ()),
        unloaded=() if own and own[0].workload in GRAPHS else unloaded(launches),
    )


def _entry(size: ScaleSize, doubts: Sequence[Warning], failures: Sequence[Failure]) -> ScaleEntry:
    keys, slug = size.keys, cell_slug(size.cell)
    broken = {(bad.launch, bad.row) for bad in size.invalid}
    invalid = {one.key for one in size.trials if (one.round, one.row.label) in broken}
    struck = tuple(
        one
        for one in failures
        if (one.key in keys and one.what != "worker")
        or (
            one.key is None
            and one.variant == size.variant
            and one.cell is not None
            and cell_slug(one.cell) == slug
        )
    )
    own = tuple(
        one
        for one in doubts
        if one.key in keys
        and not one.profiled
        and not (one.key in invalid and one.code in _SAID_OTHERWISE)
        # Nothing rare is shown of a graph's sequential requests: a mean, a std, p50 and p90.
        and not (size.workload in GRAPHS and one.code == "few-samples")
    )
    return ScaleEntry(size, own, struck, tuple(_limits(size)))


def _limits(size: ScaleSize) -> list[str]:
    """What limited each row that HTTP loaded from one node. Of several nodes the verdict, which
    weighs one machine's processes against the whole load, would be wrong; so it would where the
    client of a handle is a process that it does not know."""
    said = []
    for line in size.lines:
        verdicts = [
            limited_by(replace(trial, usage=usages_of(trial)[0]))
            for trial in line.trials
            if trial.row.client != HANDLE
            and len(nodes_of(trial)) < 2
            and usages_of(trial)
            and trial.counts.completed
        ]
        if verdicts and any(MAIN in trial.metrics for trial in line.trials):
            row = f"{short_label(line)}: " if len(size.lines) > 1 else ""
            said.append(row + limited_line(verdicts))
    return said
