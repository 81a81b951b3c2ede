"""The figures of a press run: settings with their rows, first requests, collapses, comparisons.

Pure; derived from records each time. Rule: knee, best and collapse are those of the ladder
(benchmarks/ladder/summary.py). Times are in the unit of the published table where they stand under
its names (us), else as the name says; a figure of several launches is made as statistics.Line makes
it; counts of requests are of all launches together. What could not be seen is None, never 0.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from serve_bench.analysis.climb import throughput_of
from serve_bench.analysis.statistics import MAIN, Line
from serve_bench.analysis.verdict import Verdict
from serve_bench.analysis.verdict.router import router_wait_s, router_words
from serve_bench.benchmarks.ladder.summary import LadderLine, entries_of, ladder_lines
from serve_bench.benchmarks.parts.inside import gpu_percent
from serve_bench.benchmarks.parts.rows import Entry, Page, page_of
from serve_bench.core.axes import cell_defaults
from serve_bench.core.ladder import COLLAPSE
from serve_bench.core.result import Deploy, JsonObject, Result, Trial, cell_slug

NOT_OF_THE_SERVICE: Final = ("load_worker", "serve_bench")
"""Roles of the client and of the tool itself; all other processes sampled are the service's."""

QUEUES: Final = ("ongoing", "queued", "router_queue")
"""Levels of Serve's own metrics that count requests at work or waiting."""


@dataclass(frozen=True)
class PressUse:
    """CPU in % of a core and GPU in %, means over launches. `service`: all processes of the
    cluster; `client`: the load workers; `host`: all that runs, of `cores`. None: not seen."""

    service: float | None = None
    client: float | None = None
    host: float | None = None
    cores: int | None = None
    gpu: float | None = None


@dataclass(frozen=True)
class PressRow:
    """One run of one step of a setting, as published and with what was seen beside.

    `name`: as published, json_1_<timeout ms>_<clients>_<requests of each>. `asked`: requests, None
    where time alone ends the row. `cut`: requests that time kept from being answered; `late`: those
    that ended in the drain, when time had ended the row. `total_us`: from the first connection
    begun to the last answer, `without_us`: from all connections open. `unaccounted`: asked -
    completed - failed - cut, which must be 0.
    """

    name: str
    entry: Entry
    asked: int | None
    cut: int
    late: int
    unaccounted: int
    ave_us: float | None
    total_us: float | None
    without_us: float | None
    qps: float | None
    qps_without: float | None
    use: PressUse
    levels: Mapping[str, float]

    @property
    def line(self) -> Line:
        """The figures that rows of all kinds of run have."""
        return self.entry.line

    @property
    def limited(self) -> Verdict | None:
        """What limited it in most of its launches; None where CPU was not sampled."""
        return self.entry.limited

    @property
    def p50_ms(self) -> float | None:
        return self.entry.latency_ms("p50")

    @property
    def p99_ms(self) -> float | None:
        return self.entry.latency_ms("p99")

    @property
    def clients(self) -> int:
        """Connections, each a client."""
        return self.line.row.connections

    @property
    def run(self) -> int:
        """1, or higher where the step was measured again."""
        return self.line.row.run

    @property
    def ended_by_time(self) -> bool:
        """Whether time ended it in any launch before its last request had ended."""
        return bool(self.cut or self.late)

    @property
    def client_bound(self) -> bool:
        """Whether the client was the limit in any launch, by its own evidence."""
        verdicts = (trial.client.get("verdict", trial.client) for trial in self.line.trials)
        return any(one.get("client_bound") for one in verdicts)


def _row(entry: Entry, device: str | None, result: Result) -> PressRow:
    """`device`: the one that was used."""
    line = entry.line
    latency, rate = line.distributions.get("latency"), line.spreads.get(MAIN)
    spans = [(one, float(one.seconds.get("measured", 0.0))) for one in line.trials]
    asked = line.row.requests and (line.row.requests * len(line.trials) or None)
    # Requests of a load worker that was lost are not known, and so not accounted for.
    lost = {one.key for one in result.failures if one.what == "worker"}
    ended = [
        trial
        for trial in line.trials
        if trial.row.requests is not None
        and (trial.flags.get("cut") or trial.flags.get("interrupted"))
        if trial.key not in lost
    ]
    cut = sum(
        one.counts.in_flight + max(0, (one.row.requests or 0) - one.counts.sent) for one in ended
    )
    late = sum(
        one.counts.completed + one.counts.failed_total - one.ended_in_windows for one in ended
    )
    return PressRow(
        name=_row_name(line, result),
        entry=entry,
        asked=asked,
        cut=cut,
        late=late,
        unaccounted=0 if asked is None else asked - line.completed - line.errors - cut,
        ave_us=None if latency is None else latency.mean / 1e3,
        total_us=_mean(
            1e6 * (float(one.seconds.get("connecting", 0.0)) + span) for one, span in spans if span
        ),
        without_us=_mean(1e6 * span for _, span in spans if span),
        qps=None if rate is None else rate.mean,
        qps_without=_mean(one.completed_in_windows / span for one, span in spans if span),
        use=_use([trial for trial in line.trials if trial.usage], device),
        levels=_levels(line.trials),
    )


def _row_name(line: Line, result: Result) -> str:
    """The published name; where time alone ends a row it stands in place of the requests."""
    row, suite = line.row, result.run.suite
    timeout_ms = round(1e3 * float(suite.get("timeout_s") or 0.0))
    each = row.requests_each
    last = f"{suite.get('max_row_s', 0):g}s" if each is None else str(each)
    return f"json_1_{timeout_ms}_{row.connections}_{last}"


def _use(sampled: Sequence[Trial], device: str | None) -> PressUse:
    hosts = [trial.usage["host"] for trial in sampled if trial.usage.get("host")]
    cores = [int(host["cores"]) for host in hosts if host.get("cores")]
    return PressUse(
        service=_mean(_cpu(trial, client=False) for trial in sampled),
        client=_mean(_cpu(trial, client=True) for trial in sampled),
        host=_mean(host.get("cpu_percent") for host in hosts),
        cores=cores[0] if cores else None,
        gpu=_mean(gpu_percent(trial) for trial in sampled) if device == "cuda" else None,
    )


def _cpu(trial: Trial, client: bool) -> float | None:
    """CPU of all processes of the service, or of the load workers; None if none was seen."""
    shares = [
        float(one["cpu_percent"])
        for one in trial.usage.get("processes", ())
        if one.get("cpu_percent") is not None
        and (one["role"] == "load_worker" if client else one["role"] not in NOT_OF_THE_SERVICE)
    ]
    return sum(shares) if shares else None


def _levels(trials: Sequence[Trial]) -> dict[str, float]:
    """Requests at work and waiting by Serve's own metrics, where they are known to be fresh."""
    levels = [trial.serve_metrics.get("levels") or {} for trial in trials]
    means = {
        name: _mean(float(one[name]) for one in levels if isinstance(one.get(name), int | float))
        for name in QUEUES
    }
    return {name: mean for name, mean in means.items() if mean is not None}


def _mean(values: Iterable[float | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return statistics.fmean(known) if known else None


@dataclass(frozen=True)
class RunFigure:
    """One run of a collapsed step in one launch. `fell`: below 80 % of the best."""

    round: int
    run: int
    qps: float
    errors: int
    cut: bool
    fell: bool


@dataclass(frozen=True)
class Collapse:
    """A step that collapsed, its row nearest to the median, and each of its runs.

    `share`: of the best requests/s. `agree`: all runs fell, and none served less than 80 % of
    another, since a collapse is rarely the same twice. `router`: words, where the requests/s are
    those of Serve's router alone.
    """

    at: PressRow
    qps: float
    share: float
    runs: tuple[RunFigure, ...]
    agree: bool
    router: str | None = None


@dataclass(frozen=True)
class Setting:
    """A variant and a cell. `cell` is complete where the suite has it; `name` says what is not the
    same in all settings. `device` ("cpu", "cuda") is the one that was used; None without a model
    and where nothing is visible. `first_ms`: the first request after each start of new replicas.
    """

    name: str
    variant: str
    cell: JsonObject
    device: str | None
    ladder: LadderLine
    rows: tuple[PressRow, ...]
    collapses: tuple[Collapse, ...]
    first_ms: tuple[float, ...]
    settled: tuple[JsonObject, ...]

    @property
    def visible(self) -> bool:
        """Whether the service is one of ours; of one that was there already no process is seen."""
        return bool(self.ladder.cell)

    @property
    def log_level(self) -> str | None:
        """Its log level, if it has one that is known."""
        level = self.cell.get("log_level")
        return None if level is None else str(level)

    @property
    def launches(self) -> int:
        return len({trial.round for row in self.rows for trial in row.line.trials})

    def row_of(self, line: Line | None) -> PressRow | None:
        return next((row for row in self.rows if row.line is line), None)

    @property
    def best(self) -> PressRow | None:
        """The row with the highest qps that can be relied on."""
        return self.row_of(self.ladder.best)

    @property
    def knee(self) -> PressRow | None:
        """The row with the fewest clients that has 95 % of it."""
        return self.row_of(self.ladder.knee)

    @property
    def best_qps(self) -> float | None:
        """Requests/s of the best step, connecting included."""
        return None if self.ladder.best is None else self.ladder.rate(self.ladder.best)

    @property
    def one_client(self) -> PressRow | None:
        """The first run with one client."""
        return next((row for row in self.rows if row.clients == 1), None)


def settings_of(result: Result, page: Page | None = None) -> tuple[Setting, ...]:
    """The settings of a press run, in the order in which they were begun. `page`: of the result;
    made here unless it is passed."""
    page, ladders = page or page_of(result), ladder_lines(result)
    cells = [_complete(ladder.cell, result) for ladder in ladders]
    devices = [_device(ladder, cell, result) for ladder, cell in zip(ladders, cells, strict=True)]
    known = [
        {"variant": ladder.variant, **cell, **({"device": device} if device else {})}
        for ladder, cell, device in zip(ladders, cells, devices, strict=True)
    ]
    return tuple(
        _setting(*of, result, page)
        for of in zip(_names(known), ladders, cells, devices, strict=True)
    )


def axis_words(axis: str, value: Any) -> str:
    """A value of an axis, shortly: the axis is named where the value alone does not say it."""
    if axis == "device":
        return {"cpu": "CPU", "cuda": "GPU"}.get(str(value), str(value))
    return str(value) if axis in ("variant", "log_level", "ranker") else f"{axis} {value}"


def _differing(cells: Sequence[JsonObject]) -> tuple[str, ...]:
    """The axes that have more than one value, in the order in which they first appear."""
    every = dict.fromkeys(axis for cell in cells for axis in cell)
    return tuple(axis for axis in every if len({str(cell.get(axis)) for cell in cells}) > 1)


def _names(cells: Sequence[JsonObject]) -> list[str]:
    """What is not the same in all; of a single setting what the published tables are told by."""
    shown = _differing(cells) or ("variant", "device", "log_level")
    return [
        ", ".join(axis_words(axis, cell[axis]) for axis in shown if cell.get(axis) is not None)
        for cell in cells
    ]


def _complete(label: JsonObject, result: Result) -> JsonObject:
    """A cell as recorded leaves out what stands at its default; a service of others has none."""
    return {**cell_defaults(str(result.run.suite.get("app"))), **label} if label else {}


def _device(ladder: LadderLine, cell: JsonObject, result: Result) -> str | None:
    """The device that the replicas say they are on; where they do not, the one that was asked."""
    used = [
        replica["device"]
        for deploy in _deploys(ladder, result)
        for replica in deploy.proof.get("replicas", ())
        if isinstance(replica, Mapping) and replica.get("device")
    ]
    device = used[0] if used else cell.get("device")
    return None if device is None else str(device).partition(":")[0]


def _deploys(ladder: LadderLine, result: Result) -> list[Deploy]:
    launches = {one.id for one in result.launches if one.variant.name == ladder.variant}
    slug = cell_slug(ladder.cell)
    return [one for one in result.deploys if one.launch in launches and cell_slug(one.cell) == slug]


def _setting(
    name: str, ladder: LadderLine, cell: JsonObject, device: str | None, result: Result, page: Page
) -> Setting:
    entries = entries_of(ladder, page)
    # The line is that of the ladder, since its knee, best and collapses are told by identity.
    own = [replace(entries[line.row], line=line) for line in ladder.steps]
    rows = tuple(_row(entry, device, result) for entry in own)
    deploys = _deploys(ladder, result)
    first = [one.proof["first_request"] for one in deploys if one.proof.get("first_request")]
    return Setting(
        name=name,
        variant=ladder.variant,
        cell=cell,
        device=device,
        ladder=ladder,
        rows=rows,
        collapses=tuple(
            replace(_collapse(line, rows, ladder), router=_router(line, ladder, cell, result))
            for line in ladder.collapses
        ),
        first_ms=tuple(float(one["ms"]) for one in first),
        settled=tuple(one.settled for one in deploys if one.settled),
    )


def _collapse(line: Line, rows: Sequence[PressRow], ladder: LadderLine) -> Collapse:
    """A collapse with each of its runs; a ladder that has one has a best."""
    most = max(ladder.rates[users] for users in ladder.served)
    own = [one for one in ladder.steps if one.row.connections == line.row.connections]
    runs = tuple(
        RunFigure(
            round=trial.round,
            run=one.row.run,
            qps=rate,
            errors=trial.counts.failed_total,
            cut=bool(trial.flags.get("cut")),
            fell=rate < COLLAPSE * most,
        )
        for one in own
        if one not in ladder.doubted
        for trial in one.trials
        for rate in (throughput_of(trial),)
    )
    rates = [one.qps for one in runs]
    alike = min(rates) >= COLLAPSE * max(rates)
    return Collapse(
        at=next(row for row in rows if row.line is line),
        qps=ladder.rate(line),
        share=ladder.rate(line) / most,
        runs=tuple(sorted(runs, key=lambda one: (one.round, one.run))),
        agree=all(one.fell for one in runs) and alike,
    )


def _router(line: Line, ladder: LadderLine, cell: JsonObject, result: Result) -> str | None:
    """Words where a step is what the router of an app of one deployment gives."""
    if result.run.suite.get("app") != "press_noop":
        return None
    wait_s = router_wait_s(result.launches, ladder.variant)
    return router_words(ladder.rate(line), int(cell.get("num_replicas", 0)), wait_s)


#
# Rule: two settings are compared where they differ in one axis alone, by ratios within the same
# round, since what a machine does changes from launch to launch. A direction is only claimed where
# every launch has it, and it is stated how often chance alone brings that.

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")
"""The quietest last: others are held against it."""

Support = Literal["distinguished", "not distinguished", "one launch"]
"""What the launches show: a direction that all of them have, or none."""


@dataclass(frozen=True)
class Comparison:
    """`other` against `base`, which differ in `axis` alone.

    `rounds`: best requests/s of other over that of base, in each launch that has both; `steps`: the
    same at each number of clients that both have. `ratio`: of the means over those launches.
    """

    axis: str
    other: Setting
    base: Setting
    where: str
    rounds: Mapping[int, float]
    steps: Mapping[int, Mapping[int, float]]
    ratio: float

    @property
    def support(self) -> Support:
        """Whether all launches have the same direction."""
        if len(self.rounds) < 2:
            return "one launch"
        alike = all(one < 1 for one in self.rounds.values()) or all(
            one > 1 for one in self.rounds.values()
        )
        return "distinguished" if alike else "not distinguished"

    @property
    def word(self) -> str:
        """What a round is called: with one variant it is a launch, else one launch of each."""
        return "round" if self.axis == "variant" else "launch"

    @property
    def sentence(self) -> str:
        """What can be said, in one line that ends with a full stop."""
        sides = (self.other, self.base)
        other, base = (axis_words(self.axis, _axes(one).get(self.axis)) for one in sides)
        where = f"{self.where}: " if self.where else ""
        served = f"{where}{other} serves {_ratio(self.ratio)} of {base}'s best requests/s"
        each = ", ".join(_ratio(one) for one in self.rounds.values())
        if self.support == "one launch":
            return (
                f"{served} in one {self.word}: within what one can show, since launches differ "
                "too (--launches 3)."
            )
        count, plural = len(self.rounds), "rounds" if self.axis == "variant" else "launches"
        if self.support == "distinguished":
            chance = 2 ** (count - 1)
            return f"{served} ({each}; all {count} {plural} agree: by chance 1 time in {chance})."
        return (
            f"{where}{other} and {base} are not distinguished: {other} serves {each} of {base}'s "
            f"best requests/s in the {count} {plural}."
        )


def comparisons(settings: Sequence[Setting]) -> tuple[Comparison, ...]:
    """All pairs that differ in one axis, each against the base of that axis: the quietest log
    level, the CPU, else the setting that was begun first."""
    cells = [_axes(one) for one in settings]
    axes = _differing(cells)
    every = []
    for axis in axes:
        others = [one for one in axes if one != axis]
        groups: dict[tuple[str, ...], list[Setting]] = {}
        for setting, cell in zip(settings, cells, strict=True):
            groups.setdefault(tuple(str(cell.get(one)) for one in others), []).append(setting)
        for group in groups.values():
            base = min(group, key=lambda one: _rank(axis, _axes(one).get(axis)))
            where = ", ".join(
                axis_words(one, value)
                for one in others
                if (value := _axes(base).get(one)) is not None
            )
            every += [_compare(axis, one, base, where) for one in group if one is not base]
    return tuple(one for one in every if one is not None)


def _axes(setting: Setting) -> JsonObject:
    """What a setting has on each axis; the variant and the device that was used among them."""
    device = {"device": setting.device} if setting.device else {}
    return {"variant": setting.variant, **setting.cell, **device}


def _rank(axis: str, value: object) -> int:
    if axis == "log_level" and value in LEVELS:
        return -LEVELS.index(str(value))
    return -1 if axis == "device" and value == "cpu" else 0


def _compare(axis: str, other: Setting, base: Setting, where: str) -> Comparison | None:
    """None where there is no launch in which both served."""
    shared = sorted(other.ladder.rounds.keys() & base.ladder.rounds.keys())
    pairs = {at: (other.ladder.best_of(at), base.ladder.best_of(at)) for at in shared}
    bests = {at: (ours, theirs) for at, (ours, theirs) in pairs.items() if ours and theirs}
    if not bests:
        return None
    ratios = {round_: ours / theirs for round_, (ours, theirs) in bests.items()}
    steps: dict[int, dict[int, float]] = {}
    for round_ in bests:
        ours, theirs = other.ladder.rounds[round_], base.ladder.rounds[round_]
        for users in (users for users in ours if theirs.get(users)):
            steps.setdefault(users, {})[round_] = ours[users] / theirs[users]
    means = [statistics.fmean(side) for side in zip(*bests.values(), strict=True)]
    return Comparison(
        axis=axis,
        other=other,
        base=base,
        where=where,
        rounds=ratios,
        steps=dict(sorted(steps.items())),
        ratio=means[0] / means[1],
    )


def _ratio(value: float) -> str:
    """Two decimals, three digits where it is small: 0.78, 1.03, 0.0123."""
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"
