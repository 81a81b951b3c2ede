"""The values by which A and B are compared, one for each launch, from the trials of a run.

Pure. Rule: a launch gives one value of a metric, or none where it was not measured; windows and
slices are no launches. A step that was measured several times in a launch counts by its median.
Profiled trials are never among them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from serve_bench.analysis.checks import Warning
from serve_bench.analysis.ratios import FEWEST, Judged
from serve_bench.analysis.statistics import MAIN, LowerBound, answered, latency_figures, read_rate
from serve_bench.core.failed_requests import INVALID_SHARE, failures_of
from serve_bench.core.result import Better, JsonObject, PlannedTrial, Result, Trial, cell_slug
from serve_bench.core.traffic import Row

WAY: Final = frozenset({"haproxy", "proxy", "fallback_proxy", "replica"})
"""Roles on a request's way, whose CPU it costs. Controller, raylet and agents work at another pace,
whether requests come or not."""


@dataclass(frozen=True)
class Measure:
    """A metric that is compared."""

    name: str
    unit: str  # of its values
    better: Better


PREFIXES: Final = {"latency": "", "ttft": "ttft_", "itl": "itl_"}
SHARES: Final = {"p50": 0.5, "p99": 0.99}
OF_STREAMS: Final = tuple(f"{name}_{figure}" for name in ("ttft", "itl") for figure in SHARES)

MEASURES: Final = (
    Measure("throughput", "requests/s", "higher"),
    Measure("p50", "ns", "lower"),
    Measure("p99", "ns", "lower"),
    Measure("cpu", "ns", "lower"),  # of the server, for a request
    *(Measure(name, "ns", "lower") for name in OF_STREAMS),
)
OF_ALL: Final = frozenset(("throughput", "p50", "p99", "cpu"))
"""Metrics of every row, which says why one is missing; only rows of streams have the others."""

NAMES: Final = tuple(measure.name for measure in MEASURES)


@dataclass(frozen=True)
class RowPlace:
    """What rows of two sides are matched by: the scenario, as far as it has a name."""

    cell: str
    row: str
    client: str


@dataclass(frozen=True)
class SideRow:
    """A row of a cell on one side."""

    cell: JsonObject
    row: Row
    planned: tuple[int, ...] = ()  # its rounds
    trials: tuple[Trial, ...] = ()
    broken: tuple[int, ...] = ()  # rounds with a trial that was measured and dropped
    values: Mapping[str, Mapping[int, float]] = field(default_factory=dict)  # by metric, then round
    ingress: str = ""  # the deployment that HTTP meets, of a user's own app

    @property
    def rounds(self) -> tuple[int, ...]:
        """The rounds in which it was measured: requests were answered."""
        return tuple(sorted({trial.round for trial in self.trials if answered(trial)}))

    @property
    def failed_share(self) -> float:
        """Failed and overdue requests as a share of all that ended or were given up; 0 of none."""
        failed = sum(trial.counts.failed_total + count_overdue(trial) for trial in self.trials)
        ended = failed + sum(trial.counts.completed for trial in self.trials)
        return failed / ended if ended else 0.0


def rows_of(
    result: Result, variant: str, rounds: Collection[int] | None = None
) -> dict[RowPlace, SideRow]:
    """Return the rows of a variant, in these rounds or in all.

    In the order of the plan, those without a plan behind. What a broken cluster measured is planned
    and not measured (Result.broken). Raises FormatError when a stored histogram cannot be read."""
    places: dict[RowPlace, list[PlannedTrial | Trial]] = {}
    all_trials: list[PlannedTrial | Trial] = [*result.plan, *result.trials]
    broken, asked = result.broken, result.run.asked
    app = next((side for side in asked.sides if side.label == variant), asked).app
    ingress = "" if isinstance(app, str) or not app.deployments else app.deployments[-1].name
    for trial in all_trials:
        if trial.variant == variant and (rounds is None or trial.round in rounds):
            places.setdefault(place_of(trial), []).append(trial)
    return {place: _row(trials, broken, ingress) for place, trials in places.items()}


def place_of(trial: PlannedTrial | Trial) -> RowPlace:
    """Return where a trial belongs; a step that is measured again stands with its first run."""
    label = trial.row.label.removesuffix(f", run {trial.row.run}")
    return RowPlace(cell_slug(trial.cell), label, trial.row.client)


def _row(planned: list[PlannedTrial | Trial], broken: Collection[str], ingress: str) -> SideRow:
    """Gather the trials of a row on one side, and their values by metric and round."""
    measured = [trial for trial in planned if isinstance(trial, Trial)]
    trials = [trial for trial in measured if trial.key not in broken]
    values: dict[str, dict[int, list[float]]] = {}
    for trial in trials:
        for name, value in read_values(trial).items():
            values.setdefault(name, {}).setdefault(trial.round, []).append(value)
    return SideRow(
        cell=planned[0].cell,
        row=planned[0].row,
        planned=tuple(sorted({trial.round for trial in planned})),
        trials=tuple(sorted(trials, key=lambda trial: (trial.round, trial.row.run))),
        broken=tuple(sorted({trial.round for trial in measured if trial.key in broken})),
        values={
            name: {round_: statistics.median(rounds[round_]) for round_ in sorted(rounds)}
            for name, rounds in values.items()
        },
        ingress=ingress,
    )


def read_values(trial: Trial) -> dict[str, float]:
    """Return the values of a trial by metric: requests/s, and ns for the others.

    A lower bound is no value: what was given up would make a side look faster than it is."""
    if not answered(trial):
        return {}
    sliced, rate = trial.client.slices, read_rate(trial).mean
    if sliced is not None and sliced.method == "slices":
        rate = sum(sliced.completed) / (sum(sliced.length_s) or math.inf)
    figures: dict[str, float | None] = {MAIN: rate, "cpu": _cpu_ns(trial)}
    for metric, prefix in PREFIXES.items():
        if metric in trial.metrics and trial.metrics[metric].unit == "ns":
            known = latency_figures([trial], [*SHARES.values()], metric)
            figures |= zip((f"{prefix}{name}" for name in SHARES), known, strict=True)
    read = {name: metric.windows for name, metric in trial.metrics.items() if name in SHARES}
    figures |= {name: statistics.fmean(windows) for name, windows in read.items() if windows}
    sound = ((name, value) for name, value in figures.items() if not isinstance(value, LowerBound))
    return {name: float(value) for name, value in sound if value and 0 < value < math.inf}


def describe_errors(a: Result, b: Result) -> Iterator[str]:
    """Say for each row between what B/A is, by the errors of figures within a launch.

    These (`p50_error`, a share) come with files of other tools, which are one launch."""
    others = {trial.key: trial for trial in b.trials}
    for sides in ((trial, others[trial.key]) for trial in a.trials if trial.key in others):
        spans, (of_a, of_b) = list[str](), map(read_values, sides)
        for name in (name for name in NAMES if name in of_a and name in of_b):
            found = [side.metrics.get(f"{name}_error") for side in sides]
            shares = [share for known in found if known for share in known.windows or ()]
            factor = math.exp(min(math.hypot(*shares), 700.0))  # more overflows
            ratio = of_b[name] / of_a[name]
            same = " (no difference shows)" if ratio / factor <= 1 <= ratio * factor else ""
            span = f"{name} {ratio / factor:.3g} to {ratio * factor:.3g}{same}"
            spans += [span] if len(shares) == len(sides) else []
        if spans:
            within = f"within these files B/A is {', '.join(spans)}"
            yield f"{sides[0].key}: one run a side is no evidence on others; {within}"


def count_overdue(trial: Trial) -> int:
    """Count the requests without an answer when the drain ended.

    None in a closed loop whose queue is longer (Little: connections / rate) than windows and drain:
    their turn had not come."""
    rate, seconds = read_rate(trial).mean, trial.seconds
    if trial.row.loop == "closed" and rate and seconds.connect is not None:
        waited_s = seconds.total - seconds.connect - seconds.warmup
        return 0 if trial.row.connections / rate > waited_s else trial.unanswered
    return trial.unanswered


def _cpu_ns(trial: Trial) -> float | None:
    """Return the CPU time per request of the processes on its way; None if not sampled."""
    metric, sliced = trial.metrics.get("server_cpu"), trial.client.slices
    if metric is not None and metric.windows and sliced:
        requests = sliced.requests or sum(sliced.completed)
        return 1e9 * sum(metric.windows) / (requests or math.inf)
    if sliced or trial.client.nodes:  # of a load from many nodes only one host is sampled
        return None
    way = [process.cpu_percent for process in trial.usage.processes if process.role in WAY]
    shares = [share for share in way if share is not None]
    seconds, completed = read_rate(trial).seconds, trial.completed_in_windows
    return 1e7 * sum(shares) * seconds / completed if shares and completed else None


# What casts doubt on a side of a comparison, by row, and what a doubt does to a verdict. Two touch
# the words: a client that was the limit on both sides hides any difference, and a side of which too
# many requests failed can neither win nor be the same.

TWICE: Final = 2.0
"""If A's share of failed requests is above INVALID_SHARE too, B is worse from this multiple on."""

STEAL_SHARE: Final = 0.05
"""A hypervisor that took more than 5 % of all cores took as much as the usual threshold."""

CLIENT: Final = "client-bound"

NOT_OF_SLICES: Final = "few-windows unsteady-windows littles-law too-short too-slow".split()
"""Checks of windows. A slice is far shorter than the rhythms of a machine, so its rate may swing;
its requests in flight rise from none and drain to none."""


@dataclass(frozen=True)
class Doubt:
    """A doubt about a row of a side."""

    side: str
    code: str
    message: str  # that of the first launch
    hint: str
    launches: int  # with the doubt
    of: int  # launches of the side


def group_by_key(result: Result, doubts: Iterable[Warning]) -> dict[str, list[Warning]]:
    """Group the doubts about trials by key, without those about profiles or windows of slices."""
    doubts_by_key: dict[str, list[Warning]] = {}
    slices = {trial.key: trial.client.slices for trial in result.trials}
    for doubt in doubts:
        part = slices.get(doubt.key or "")
        of_windows = doubt.code in NOT_OF_SLICES and part is not None and part.method == "slices"
        if doubt.key is not None and not doubt.profiled and not of_windows:
            doubts_by_key.setdefault(doubt.key, []).append(doubt)
    return doubts_by_key


def list_doubts(side: str, row: SideRow, known: Mapping[str, Sequence[Warning]]) -> list[Doubt]:
    """List the doubts about a row of a side, each code once."""
    first: dict[str, Warning] = {}
    rounds: dict[str, set[int]] = {}
    for trial in row.trials:
        for warning in (*known.get(trial.key, ()), *_of_trial(trial)):
            first.setdefault(warning.code, warning)
            rounds.setdefault(warning.code, set()).add(trial.round)
    if "errors" in first:
        failed = sum(trial.counts.failed_total for trial in row.trials)
        why = f"({share_text(row.failed_share)}): {failures_of(row.trials)}"
        first["errors"] = replace(first["errors"], message=f"{failed:,} requests failed {why}")
    measured = len({trial.round for trial in row.trials})
    return [
        Doubt(side, code, warning.message, warning.hint, len(rounds[code]), measured)
        for code, warning in first.items()
    ]


def _of_trial(trial: Trial) -> Iterator[Warning]:
    """Yield the doubts that only matter to a comparison."""
    if trial.flags.cut:
        yield Warning("cut", "ended by time", "its rate is that until then")
    figures = zip(("p50", "p99"), latency_figures([trial], (0.5, 0.99)), strict=True)
    if open_ := [name for name, value in figures if isinstance(value, LowerBound)]:
        message = f"{' and '.join(open_)} {'are lower bounds' if open_[1:] else 'is a lower bound'}"
        hint = "some requests had no response, so it is not compared"
        yield Warning("lower-bound", message, hint)
    if trial.flags.short_slices:
        message = "its slices are shorter than five drains"
        yield Warning("short-slices", message, "give longer ones, or fewer connections")
    if trial.flags.way_changed:
        message = "CPU not judged: processes on the request's way started or ended"
        yield Warning("way-changed", message, "hold the number of replicas fixed")
    steal, cores = trial.usage.host.steal_percent, trial.usage.host.cores
    if steal is not None and cores and steal > 100 * STEAL_SHARE * cores:
        message = f"a hypervisor took {steal / cores:.0f} % of all cores"
        yield Warning("steal", message, "repeat when the host is quieter")


ODD_MADS: Final = 5.0
ODD_SHARE: Final = 0.1
ODD_OF: Final = 5


def find_odd_launches(
    measure: str, a: Mapping[int, float], b: Mapping[int, float], letter: str
) -> Iterator[Doubt]:
    """Yield a doubt about each launch unlike its others, of rounds that both sides have.

    The log ratio of its round is farther from the median than ODD_MADS normal deviations (1.4826
    MAD) and ODD_SHARE. The side, A or `letter`, is that which is farther from its own median. Below
    ODD_OF rounds none is odd."""
    if len(a) < ODD_OF:
        return
    logs = {n: math.log(b[n] / a[n]) for n in a}
    middle = statistics.median(logs.values())
    far = ODD_MADS * 1.4826 * statistics.median(abs(log - middle) for log in logs.values())
    for n, log in logs.items():
        if abs(log - middle) > max(far, math.log(1 + ODD_SHARE)):
            sides = {"A": a, letter: b}
            shares = {name: by[n] / statistics.median(by.values()) for name, by in sides.items()}
            side = max(shares, key=lambda letter: abs(math.log(shares[letter])))
            message = f"round {n}: {measure} {shares[side]:.3g} x the median of its launches"
            hint = "an odd launch moves the ratio little from 7 rounds on"
            yield Doubt(side, "odd-launch", message, hint, 1, len(logs))


def weigh_doubts(
    judged: Judged, metric: str, sides: Mapping[str, SideRow], doubts: Sequence[Doubt]
) -> Judged:
    """Weigh a verdict by the doubts: what they forbid to say becomes inconclusive, with why.

    `sides`: the row of A and of the other, by letter."""
    # The sides of which the client was the limit, in half of the launches or more.
    limited = (doubt for doubt in doubts if doubt.code == CLIENT)
    bound = {doubt.side for doubt in limited if 2 * doubt.launches >= doubt.of}
    both = len(bound) == 2 and metric != "cpu"  # which is of the server, whoever waits
    whys = []
    if judged.word == "same" and both:
        whys.append("the client was the limit on both sides: a difference would not show")
    for letter, row in sides.items():
        losing = ("improved", "faster") if letter == "A" else ("regressed", "slower")
        if row.failed_share > INVALID_SHARE and judged.word not in (*losing, "inconclusive"):
            failed = share_text(row.failed_share)
            whys.append(f"{failed} of {letter}'s requests failed: figures invalid")
    return replace(judged, word="inconclusive", why=whys[0], weighed=True) if whys else judged


def explain_worse(a: SideRow, b: SideRow, letter: str) -> str:
    """Say why B is worse whatever its figures say; empty where its figures decide.

    Too many of its requests failed and not of A's, or more than twice as many of them; or it could
    not be measured in enough launches for a verdict, and A could. Launches that broke while it was
    measured say nothing about it."""
    of_a, of_b = a.failed_share, b.failed_share
    if of_b > INVALID_SHARE and (of_a <= INVALID_SHARE or of_b > TWICE * of_a):
        return f"{share_text(of_b)} of {letter}'s requests failed, {share_text(of_a)} of A's"
    silent = [trial for trial in b.trials if read_rate(trial).silent_from == 1]
    if silent and len(b.rounds) - len(silent) < FEWEST <= len(a.values.get(MAIN, {})):
        return f"{letter} stood still from the start in {len(silent)} of {len(b.planned)} launches"
    if len({*b.rounds, *b.broken}) < FEWEST <= min(len(a.rounds), len(b.planned)):
        launches = f"{len(b.rounds)} of {len(b.planned)} launches of {letter}"
        return f"measured in {launches}, in {len(a.rounds)} of {len(a.planned)} of A"
    return ""


def share_text(share: float) -> str:
    """Render a share as `0 %`, `1.2 %`, `60 %`, `over 99 %`, `100 %` (of all alone)."""
    if 0.995 <= share < 1:
        return "over 99 %"
    return f"{100 * share:.2g} %" if share < 0.0995 else f"{100 * share:.0f} %"
