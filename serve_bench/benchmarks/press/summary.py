"""The figures of a press run: settings with their rows, first requests and collapses.

Pure; derived from records each time. Rule: knee, best and collapse are those of the ladder
(ladder_figures.py). A row is in press_rows.py; settings are held against each other in
press_compare.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serve_bench.analysis.climb import throughput_of
from serve_bench.analysis.statistics import Line
from serve_bench.benchmarks.ladder.summary import LadderLine, ladder_lines
from serve_bench.benchmarks.press.rows import PressRow, press_row
from serve_bench.core.axes import cell_defaults
from serve_bench.core.ladder import COLLAPSE
from serve_bench.core.result import Deploy, JsonObject, Result, cell_slug


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
    another, since a collapse is rarely the same twice.
    """

    at: PressRow
    qps: float
    share: float
    runs: tuple[RunFigure, ...]
    agree: bool


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
        found = self.cell.get("log_level")
        return None if found is None else str(found)

    @property
    def launches(self) -> int:
        """Launches that measured a row of it."""
        return len({trial.round for row in self.rows for trial in row.line.trials})

    def row_of(self, line: Line | None) -> PressRow | None:
        """The row of a line of the ladder."""
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


def settings_of(result: Result) -> tuple[Setting, ...]:
    """The settings of a press run, in the order in which they were begun."""
    ladders = ladder_lines(result)
    cells = [_complete(ladder.cell, result) for ladder in ladders]
    devices = [_device(ladder, cell, result) for ladder, cell in zip(ladders, cells, strict=True)]
    known = [
        {"variant": ladder.variant, **cell, **({"device": device} if device else {})}
        for ladder, cell, device in zip(ladders, cells, devices, strict=True)
    ]
    return tuple(
        _setting(*of, result) for of in zip(_names(known), ladders, cells, devices, strict=True)
    )


def axis_words(axis: str, value: Any) -> str:
    """A value of an axis, shortly: the axis is named where the value alone does not say it."""
    if axis == "device":
        return {"cpu": "CPU", "cuda": "GPU"}.get(str(value), str(value))
    said = axis in ("variant", "log_level", "ranker")
    return str(value) if said else f"{axis} {value}"


def differing(cells: Sequence[JsonObject]) -> tuple[str, ...]:
    """The axes that have more than one value, in the order in which they first appear."""
    every = dict.fromkeys(axis for cell in cells for axis in cell)
    return tuple(axis for axis in every if len({str(cell.get(axis)) for cell in cells}) > 1)


def _names(cells: Sequence[JsonObject]) -> list[str]:
    """What is not the same in all; of a single setting what the published tables are told by."""
    shown = differing(cells) or ("variant", "device", "log_level")
    return [
        ", ".join(axis_words(axis, cell[axis]) for axis in shown if cell.get(axis) is not None)
        for cell in cells
    ]


def _complete(label: JsonObject, result: Result) -> JsonObject:
    """A cell as recorded leaves out what stands at its default; a service of others has none."""
    return {**cell_defaults(str(result.run.suite.get("app"))), **label} if label else {}


def _device(ladder: LadderLine, cell: JsonObject, result: Result) -> str | None:
    """The device that the replicas say they are on; where they do not, the one that was asked."""
    told = [
        replica["device"]
        for deploy in _deploys(ladder, result)
        for replica in deploy.proof.get("replicas", ())
        if isinstance(replica, Mapping) and replica.get("device")
    ]
    found = told[0] if told else cell.get("device")
    return None if found is None else str(found).partition(":")[0]


def _deploys(ladder: LadderLine, result: Result) -> list[Deploy]:
    launches = {one.id for one in result.launches if one.variant.name == ladder.variant}
    slug = cell_slug(ladder.cell)
    return [one for one in result.deploys if one.launch in launches and cell_slug(one.cell) == slug]


def _setting(
    name: str, ladder: LadderLine, cell: JsonObject, device: str | None, result: Result
) -> Setting:
    trials = [trial for line in ladder.steps for trial in line.trials]
    rows = tuple(press_row(line, trials, device, result) for line in ladder.steps)
    deploys = _deploys(ladder, result)
    first = [one.proof["first_request"] for one in deploys if one.proof.get("first_request")]
    return Setting(
        name=name,
        variant=ladder.variant,
        cell=cell,
        device=device,
        ladder=ladder,
        rows=rows,
        collapses=tuple(_collapse(line, rows, ladder) for line in ladder.collapses),
        first_ms=tuple(float(one["ms"]) for one in first),
        settled=tuple(one.settled for one in deploys if one.settled),
    )


# --------------------------------------------------------------------------------- collapse


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
