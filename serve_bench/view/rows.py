"""What a report shows: the rows of a run with what doubts them, and its variants.

Rule: all that belongs together is joined here once; a form of report only lays it out. Nothing is
left out: what was planned and not measured has its entry too, and a failure stands where it struck
(row, variant or run). No layout, no colour here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias

from serve_bench.analysis.checks import Warning, checks
from serve_bench.analysis.statistics import MAIN, Line, answered, summarize, variants
from serve_bench.analysis.verdict import Verdict, limited_by, prevailing
from serve_bench.core.result import Failure, Launch, Result, Trial
from serve_bench.view.document import Finding
from serve_bench.view.inside import describe_profiled, describe_trial
from serve_bench.view.names import RowNames, names_of_lines

NS_PER_MS: Final = 1e6


@dataclass(frozen=True)
class Entry:
    """One row, with the doubts and failures that are about it alone. `facts`: lines that are
    neither; `verdicts`: by launch, where CPU was sampled."""

    line: Line
    warnings: tuple[Warning, ...]
    failures: tuple[Failure, ...]
    facts: tuple[str, ...] = ()
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)

    @property
    def limited(self) -> Verdict | None:
        """What limited the row, in most of its launches; None where CPU was not sampled."""
        return prevailing(tuple(self.verdicts.values())) if self.verdicts else None

    @property
    def hint(self) -> str:
        """What to try against that; empty where it is not known."""
        limit = self.limited
        return f"hint, {limit.cause}: {limit.hint}" if limit is not None and limit.hint else ""


def warning_finding(warning: Warning, about: str = "") -> Finding:
    """A warning of analysis/checks.py as a finding."""
    return Finding(warning.message, warning.code, "doubt", warning.hint, about)


@dataclass(frozen=True)
class VariantPart:
    """One variant: its flags, those that were asked for if no launch succeeded, what the proof of
    its launches says, and what is doubted and failed of it that is about none of its rows alone."""

    name: str
    env: tuple[str, ...]
    engaged: str
    warnings: tuple[Warning, ...]
    failures: tuple[Failure, ...]


@dataclass(frozen=True)
class Page:
    """A run as it is to be shown: its rows by variant and cell, its variants, and what is about
    neither; `all_failures`: those of variants and rows too. `notes`: how the figures were got."""

    entries: tuple[Entry, ...]
    names: RowNames
    variants: tuple[VariantPart, ...]
    warnings: tuple[Warning, ...]
    failures: tuple[Failure, ...]
    all_failures: tuple[Failure, ...]
    notes: tuple[str, ...]


UsageOf: TypeAlias = Callable[[Trial], Mapping[str, Any]]
"""What was sampled by which the limit of a trial is judged; empty: it is not judged."""


def page_of(result: Result, usage_of: UsageOf = lambda trial: trial.usage) -> Page:
    """Joins figures, doubts and failures."""
    lines, warnings, names = summarize(result), checks(result), variants(result)
    entries = tuple(_entry(line, result, warnings, usage_of) for line in lines)
    keys = {key for line in lines for key in line.keys}
    struck = [failure for failure in result.failures if failure.what != "worker"]
    others = [failure for failure in result.failures if failure.key not in keys]
    planned = {part["name"]: part.get("env", {}) for part in result.run.suite.get("variants", ())}
    parts = []
    for name in names:
        launches = [launch for launch in result.launches if launch.variant.name == name]
        flags = launches[0].variant.env if launches else planned.get(name, {})
        doubts = tuple(seen for seen in warnings if seen.variant == name)
        failed = tuple(failure for failure in others if failure.variant == name)
        env = tuple(f"{key}={value}" for key, value in flags.items())
        parts.append(VariantPart(name, env, ", ".join(engaged_of(launches)), doubts, failed))
    return Page(
        entries=entries,
        names=names_of_lines(lines),
        variants=tuple(parts),
        warnings=tuple(seen for seen in warnings if seen.key is None and seen.variant is None),
        failures=tuple(failure for failure in others if failure.variant not in names),
        all_failures=tuple(sorted(struck, key=lambda failure: failure.key in keys)),
        notes=tuple(_notes(result, entries)),
    )


def _notes(result: Result, entries: Sequence[Entry]) -> Iterator[str]:
    """How the figures were got, and what to try against each cause that limited a row."""
    windows = {
        (len(metric.windows), trial.window_s)
        for trial in result.trials
        if (metric := trial.metrics.get(MAIN)) is not None and metric.windows
    }
    if windows:
        shown = " or ".join(f"{count} x {length:g} s" for count, length in sorted(windows))
        yield f"requests/s: mean ± std (ddof 0) over windows, {shown}; latency in ms"
    seen = [trial.serve_metrics for trial in result.trials]
    if absent := [metrics.get("why") for metrics in seen if metrics.get("status") == "absent"]:
        yield f"Serve's own metrics are absent in {len(absent)} trials: {absent[0]}"
    yield from dict.fromkeys(entry.hint for entry in entries if entry.hint)


def _entry(line: Line, result: Result, warnings: Sequence[Warning], usage_of: UsageOf) -> Entry:
    """A row with all that is about it."""
    profiled, front = line.status == "profiled", front_of(result.run.suite)
    place = line.variant, line.cell
    beside = [trial for trial in result.trials if (trial.variant, trial.cell) == place]
    struck = [seen for seen in result.failures if seen.key in line.keys and seen.what != "worker"]
    # What ended in a cluster explains the figures of a trial of which some requests succeeded.
    messages = ((failure.key, failure.message) for failure in struck if failure.what == "trial")
    ended = {key: message for key, message in messages if key in result.broken}
    # Where nothing was completed the question is why it failed: full slots are a reason.
    verdicts = {
        trial.launch: Verdict("unclear", "unclear", "none", reasons=(ended[trial.key],))
        if trial.key in ended and trial.counts.completed and not trial.flags.get("interrupted")
        else limited_by(replace(trial, usage=usage), front, beside=beside)
        for trial in (() if profiled else line.trials)
        if (usage := usage_of(trial)) and (answered(trial) or trial.counts.failed.get("rejected"))
    }
    describe = partial(describe_profiled, result=result) if profiled else describe_trial
    facts = tuple(dict.fromkeys(fact for trial in line.trials for fact in describe(trial)))
    doubts = [seen for seen in warnings if seen.key in line.keys and seen.profiled == profiled]
    return Entry(line, tuple(doubts), () if profiled else tuple(struck), facts, verdicts)


def front_of(suite: Mapping[str, Any]) -> str | None:
    """The ingress of an app of the user's own, with the name of the app where the suite has it; of
    the others it is inferred."""
    app = suite.get("app")
    if not isinstance(app, dict) or not app.get("deployments"):
        return None
    ingress, name = str(app["deployments"][-1]["name"]), app.get("config", {}).get("name")
    return ingress if name is None else f"{name}:{ingress}"


_BY_GRPC: Final = {
    "proxy": ("RAY_SERVE_PROXY_USE_GRPC", "proxy to replicas"),
    "replica": ("RAY_SERVE_USE_GRPC_BY_DEFAULT", "handles"),
}
"""Flags by which proxies and handles send requests to replicas by gRPC, where they are on; by
reference (an object of Ray's store), where they are off. By the role that resolved them."""


def engaged_of(launches: Sequence[Launch]) -> list[str]:
    """Who serves HTTP, how requests get to replicas, and which versions run, as the proof of the
    launches says. HAProxy sends requests to the HTTP port of a replica: there is no proxy of Serve
    on their way."""
    words: list[str] = []
    for proof in (launch.proof for launch in launches):
        owner = str((proof.get("port_owner") or {}).get("name", ""))
        words += [f"HTTP by {owner}"] if owner else []
        for role, (flag, who) in _BY_GRPC.items():
            is_on = proof.get("flags", {}).get(role, {}).get(flag)
            if is_on is not None and not (role == "proxy" and "haproxy" in owner):
                words.append(f"{who} by {'gRPC' if is_on else 'reference'}")
        versions = proof.get("versions") or {}
        words += [f"{name} {value}" for name, value in versions.items() if value]
    return [*dict.fromkeys(words)]
