"""The way of every command that measures: from its options to a request, a plan, a sitting, a
report and an exit code.

Rule: nothing here knows which kind of run it is, nor whether its target is launched or is up
already. A kind says what is its own: its suite, what it measures with, its plan in words, its gate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

import msgspec
import typer

from serve_bench.cli.flag_values import share_of
from serve_bench.cli.gate import close_gate
from serve_bench.cli.options import OwnAppOptions, RowOptions, RunOptions, SuiteOptions
from serve_bench.cli.rows import targets_of
from serve_bench.cli.sitting import (
    Place,
    Sitting,
    SuiteRequest,
    agenda_lines,
    launch_lines,
    print_plan,
    request_of,
    sit,
)
from serve_bench.core.errors import BadInput
from serve_bench.core.plan import LaunchPlan, Suite, client_of, label_of, list_trials, plan, rows_of
from serve_bench.core.redaction import hide_in_text
from serve_bench.core.result import HANDLES, PlannedTrial, Result
from serve_bench.core.secrets import hide
from serve_bench.observing.inside import Inside
from serve_bench.runner.agenda import Agenda, rest_of
from serve_bench.runner.load_source import read_load_on
from serve_bench.runner.runner import Plan
from serve_bench.runner.served_bench import ServedClusters
from serve_bench.serving.launch_spec import check_interpreter, check_tracing
from serve_bench.serving.strays import marks

if TYPE_CHECKING:
    from serve_bench.view.lens import View


@dataclass(frozen=True)
class RowsRequest:
    """A suite to be measured, and what is looked at beside its load.

    `sample`: CPU, memory and GPU beside each load; `metrics`: Serve's own around it; `profile`:
    targets of a profiled repetition of each row. `trace`: the share of requests whose way through
    Serve is marked; 0: of those alone that other loads choose; None: of none.
    """

    suite: Suite
    sample: bool = True
    metrics: bool = False
    profile: tuple[str, ...] = ()
    trace: float | None = None

    def __post_init__(self) -> None:
        suite = self.suite
        if suite.load_on is not None and any(row.protocol in HANDLES for row in suite.rows):
            raise BadInput("--load-on: the load of a handle is a driver on this host")
        if self.trace and suite.load_on is not None:
            raise BadInput("--trace: the times of a load from nodes are of another clock")
        if self.trace and not any(client_of(row) == "raw" for row in rows_of(suite)):
            raise BadInput("--trace: is for rows of the raw client (--clients raw:8)")


O = TypeVar("O", bound=RunOptions)  # noqa: E741
S = TypeVar("S", bound=SuiteRequest)


class Experiment(Generic[O, S]):
    """A kind of run, from its options to its exit code: a dry run, a run, or the rest of one.

    `spec`: what is measured, and `earlier`: the run that is resumed, once they are read.
    """

    spec: S
    earlier: Result | None = None

    def __init__(self, options: O) -> None:
        self.options = options
        self.report = options.report_request()

    def read_spec(self) -> S:
        """What the options ask for. Raises BadInput before anything starts."""
        raise NotImplementedError

    def read_stored(self, suite: Mapping[str, Any]) -> S:
        """What a stored run was asked for, to go on with it. Raises BadInput."""
        raise NotImplementedError

    def content(self, spec: S, earlier: Result) -> Mapping[str, Any]:
        """What has to be as in a stored run, to go on with it."""
        return spec.to_json()

    def prepare(self) -> None:
        """Plans what is measured now. Raises BadInput where that cannot be."""

    def print_plan(self) -> int:
        """Prints the plan of a dry run. Returns the exit code."""
        raise NotImplementedError

    def begin(self) -> Sitting:
        """Prints what is to be known before it starts. Returns what is measured. Raises BadInput
        where it cannot start."""
        raise NotImplementedError

    def show(self, result: Result, folder: Path) -> int:
        """Prints the report, and what breaks the gate. Returns the exit code of the gate."""
        return self.report.close(result, folder)

    def run(self) -> int:
        """Measures what the options ask for, or prints the plan of it. Returns the exit code."""
        options = self.options
        self.spec, self.earlier = request_of(
            options, from_flags=self.read_spec, from_record=self.read_stored, content=self.content
        )
        self.prepare()
        return self.print_plan() if options.dry_run else sit(self.begin(), options, self.show)


T = TypeVar("T", bound=SuiteOptions)


class SuiteExperiment(Experiment[T, Suite]):
    """A suite that is measured: what a kind does otherwise than a run of rows or ladders stands in
    its class.

    `part`: the field that its suites have; `children_every_s`: how often processes that come later
    are looked for.
    """

    part: ClassVar[str] = ""
    children_every_s: ClassVar[float] = 1.0

    def read_suite(self) -> Suite:
        """The suite of the options. Raises BadInput before anything starts."""
        raise NotImplementedError

    def read_spec(self) -> Suite:
        return replace(self.read_suite(), load_on=self._load_on)

    def read_stored(self, suite: Mapping[str, Any]) -> Suite:
        return Suite.from_json(suite)

    def check(self, suite: Suite) -> Suite:
        """The suite that is measured now, which is that of the options or of a stored run. Raises
        BadInput where it is of another kind."""
        if self.part and getattr(suite, self.part) is None:
            raise BadInput(f"the stored suite cannot be resumed: suite.{self.part} is missing")
        return suite

    def agenda(self, request: RowsRequest, earlier: Result | None) -> Agenda:
        """What is done with each row: all, or what an earlier sitting lacks."""
        suite, profile = request.suite, bool(request.profile)
        if earlier is not None:
            return rest_of(earlier, suite, profile)
        return Agenda(suite, plan(suite), profile)

    def plan_lines(self, agenda: Agenda) -> Iterable[str]:
        """The plan of a dry run."""
        return agenda_lines(agenda.suite, agenda)

    def check_targets(self, agenda: Agenda) -> None:
        """Prints what is to be known before it starts. Raises BadInput where it cannot start."""

    def clusters(self, request: RowsRequest) -> Callable[..., ServedClusters]:
        """What makes the runner's part, of the fields that all kinds have."""
        return partial(ServedClusters, trace=request.trace)

    def breaches(self, view: View) -> Sequence[str]:
        """What breaks the gate of the kind."""
        return ()

    def show(self, result: Result, folder: Path) -> int:
        self.report.show(looked := self.report.report(result, folder))
        return close_gate(self.breaches(looked.view))

    def prepare(self) -> None:
        options, self.spec = self.options, self.check(self.spec)
        self._request = RowsRequest(
            self.spec,
            sample=not options.no_sample,
            metrics=options.serve_metrics,
            profile=targets_of(options.profile) if isinstance(options, RowOptions) else (),
            trace=share_of(options.trace, options.trace_out),
        )
        self._agenda = self.agenda(self._request, self.earlier)
        if options.format == TOML and not options.dry_run:
            raise BadInput(f"--format: {TOML} goes with --dry-run")

    def print_plan(self) -> int:
        options, suite = self.options, self.spec
        if options.format == TOML:
            return print_suite(suite, options)
        urls = [f"{name}: {hide_in_text(at.url)}" for name, at in suite.services.items()]
        lines = (*urls, *self.plan_lines(self._agenda))
        return print_plan(lines, None if self.earlier else options.out, suite.slo)

    def begin(self) -> Sitting:
        request, suite, options = self._request, self.spec, self.options
        self.check_targets(self._agenda)
        again = options.command
        again += f" --profile {','.join(request.profile)}" if request.profile else ""
        again += "" if request.trace is None else f" --trace {request.trace:g}"
        return sitting_of(
            request,
            self._agenda,
            self.clusters(request),
            self.children_every_s,
            earlier=self.earlier,
            rounds=None if self.earlier is None else suite.launches,
            again=None if suite.services else again,
            log_requests=options.log_requests,
        )

    def run(self) -> int:
        options = self.options
        if options.urls:
            options.check_url()
        self._load_on = read_load_on(options.load_on, options.load_nodes)
        return super().run()


TOML: Final = "toml"
"""The form of a dry run that is a suite file."""


def print_suite(suite: Suite, options: SuiteOptions) -> int:
    """Prints the suite file that a command line is. Raises BadInput where no file can be."""
    if not suite.keys:
        raise BadInput(f"--format: {TOML}: no suite file says what this command line does")
    flag = "" if isinstance(options, OwnAppOptions) else "--suite "
    typer.echo(f"# serve-bench {options.command} {flag}FILE, in the folder of this command")
    keys = {**suite.keys, "name": options.command if "name" not in suite.keys else suite.name}
    text = msgspec.toml.encode(keys).decode()
    if hide(text) != text:
        typer.echo("# a hash (sha256:...) stands for a value that may be a secret: write it in")
    typer.echo(text, nl=False)
    return 0


def list_launches(
    launches: Iterable[LaunchPlan], describe: Callable[[Sequence[PlannedTrial]], list[str]]
) -> Iterator[str]:
    """Launches of a dry run, with what `describe` says of the rows of each cell."""
    for launch in launches:
        cells = ((label_of(cell), describe(rows)) for cell, rows in launch.cells)
        yield from launch_lines(launch.variant.name, launch.round, cells, launch.variant.env)


def sitting_of(
    request: RowsRequest,
    agenda: Agenda,
    clusters: Callable[..., ServedClusters] = ServedClusters,
    children_every_s: float = 1.0,
    **more: Any,
) -> Sitting:
    """The sitting that measures an agenda. `more`: other fields of it. Raises BadInput where an
    interpreter has no Ray."""
    suite = request.suite

    def work(place: Place) -> Plan[Any, Any]:
        inside = Inside(
            place.folder,
            marks(place.run_id),
            sample=request.sample,
            profile=request.profile,
            metrics=request.metrics,
            children_every_s=children_every_s,
        )
        made = clusters(agenda, place.run_id, place.folder, inside=inside, place=place.source)
        return made.plan()

    for variant in suite.variants if agenda.launches and not suite.services else ():
        check_interpreter(variant)
        if request.trace is not None:
            check_tracing(variant)
    return Sitting(
        suite.to_json(),
        list_trials(plan(suite)),
        work,
        left=bool(agenda.launches),
        load_on=suite.load_on,
        set_env=None if suite.services else "use --env to set it",
        **more,
    )


class _Rows(SuiteExperiment[SuiteOptions]):
    """Rows of cells, or a load that grows. `checked`: raises BadInput for another suite."""

    def __init__(
        self,
        options: SuiteOptions,
        suite: Callable[[], Suite],
        checked: Callable[[Suite], None] | None,
    ) -> None:
        super().__init__(options)
        self._suite, self._checked = suite, checked

    def read_suite(self) -> Suite:
        return self._suite()

    def check(self, suite: Suite) -> Suite:
        if self._checked is not None and not suite.services:
            self._checked(suite)
        return suite


def measure(
    options: SuiteOptions, suite: Callable[[], Suite], check: Callable[[Suite], None] | None = None
) -> int:
    """Measures the rows or ladders of a suite. Returns the exit code. `check`: raises BadInput for
    a suite of another kind."""
    return _Rows(options, suite, check).run()
