"""The way of every command that measures: its options, plan, sitting, report and exit code.

Rule: nothing here knows which kind of run it is, nor whether its target is launched or is up
already. A kind adds its own: what it asks, what it measures with, its plan in words, its gate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeVar

import msgspec
import typer

from serve_bench.cli.exits import close_gate
from serve_bench.cli.options import (
    FormatOptions,
    OwnAppOptions,
    RowOptions,
    RunOptions,
    SuiteOptions,
)
from serve_bench.cli.rows import targets_of
from serve_bench.cli.show import ReportRequest
from serve_bench.cli.sitting import (
    Place,
    Sitting,
    SuiteRequest,
    check_same,
    done,
    list_launches,
    needs_flags,
    print_plan,
    signals,
    sit,
    whole_suite,
)
from serve_bench.core.errors import BadInput
from serve_bench.core.figures import counted
from serve_bench.core.load_spec import Timing
from serve_bench.core.plan import (
    LaunchPlan,
    Suite,
    client_of,
    duration_text,
    list_trials,
    plan,
    rows_of,
)
from serve_bench.core.redaction import hide_in_text
from serve_bench.core.result import PlannedTrial, Result
from serve_bench.core.secrets import hide
from serve_bench.core.slo import parse_slo
from serve_bench.core.traffic import HANDLES
from serve_bench.observing.inside import Inside
from serve_bench.runner.agenda import Agenda, plan_listed, rest_of
from serve_bench.runner.load_source import read_load_on
from serve_bench.runner.runner import Plan
from serve_bench.runner.served_bench import ServedClusters
from serve_bench.runner.service import Service
from serve_bench.serving.launch_spec import check_interpreter, check_tracing
from serve_bench.serving.strays import marks
from serve_bench.store import read
from serve_bench.view.csv import pick

if TYPE_CHECKING:
    from serve_bench.view.lens import View


O = TypeVar("O", bound=RunOptions)  # noqa: E741
A = TypeVar("A", bound=SuiteRequest)


class Experiment(Generic[O, A]):
    """A kind of run: what it asks, its plan, and what measures it.

    `run` calls `read`, or `restore` of a resumed run, then `prepare`; then `plan_lines` for a dry
    run, or else `begin`, `sitting` and `show`."""

    asked: A  # what is measured now: of the options or a stored run
    earlier: Result | None  # what is measured of it

    def __init__(self, options: O) -> None:
        self.options = options
        self.report = ReportRequest(**pick(options, *FormatOptions.options()))
        self.report.check()
        if options.urls:
            options.check_url()

    def read(self) -> A:
        """Read what the options ask for. Raises BadInput before anything starts."""
        raise NotImplementedError

    def restore(self, stored: Mapping[str, Any]) -> A:
        """Read what a stored run measures. Raises BadInput."""
        raise NotImplementedError

    def content(self, asked: A, earlier: Result) -> Mapping[str, Any]:
        """Return what has to be as in a stored run, to resume it."""
        return asked.to_json()

    def prepare(self, asked: A, earlier: Result | None) -> A:
        """Plan what is left to be measured, and return what is measured now.

        Raises BadInput where it is of another kind, or cannot be measured here."""
        raise NotImplementedError

    def plan_lines(self) -> Iterable[str]:
        """Describe the plan for a dry run."""
        raise NotImplementedError

    def begin(self) -> None:
        """Print what is to be known before it starts. Raises BadInput where it cannot start."""

    def sitting(self) -> Sitting:
        """Describe what is measured now."""
        raise NotImplementedError

    def show(self, result: Result, folder: Path) -> int:
        """Print the report, and what breaks the gate. Returns the exit code of the gate."""
        return self.report.close(result, folder)

    @classmethod
    def measure(cls, options: O) -> int:
        """Measure what the options ask for, or print its plan. Returns the exit code."""
        return cls(options).run()

    def run(self) -> int:
        """Measure, or print the plan. Returns the exit code."""
        if self.options.resume is None:
            asked, self.earlier = self.read(), None
        else:
            self.earlier = read(self.options.resume)
            asked = self._resume(self.options.resume, self.earlier)
        self.asked = self.prepare(asked, self.earlier)
        if self.options.dry_run:
            return self.dry_run()
        with signals():  # to the end: a second Ctrl-C must not take the report away
            self.begin()
            return sit(self.sitting(), self.options, self.show)

    def _resume(self, folder: Path, earlier: Result) -> A:
        """Return what a stored run was asked for: by the flags if needed, else by its record.

        Raises BadInput."""
        options, suite = self.options, earlier.run.suite
        if earlier.run.command != options.command:
            raise BadInput(f"--resume: {folder} holds a run of {earlier.run.command}")
        kept = (suite.get("capacity") or suite.get("timeline") or suite).get("slo")
        if options.slo is not None and parse_slo(options.slo).source != kept:
            raise BadInput(f"--slo: a run keeps its own, which is {kept or 'none'}; leave it out")
        if needs_flags(folder, earlier, options.changed(lambda option: not option.opt.resume)):
            check_same(folder, earlier, self.content(asked := self.read(), earlier))
            return asked
        if suite.get("urls") is not None:
            raise BadInput(
                f"--resume: {folder} holds a run of services, whose headers are not kept: start "
                "another"
            )
        with whole_suite():
            return self.restore(suite)

    def dry_run(self) -> int:
        """Print the plan. Returns the exit code."""
        out, slo = None if self.earlier else self.options.out, getattr(self.asked, "slo", None)
        return print_plan(self.plan_lines(), out, slo)


# Kinds whose rows are known beforehand, of a Spec that says its launches itself.


class PlannedSpec(SuiteRequest, Protocol):
    """What a run measures, and its launches."""

    def plan(self, done: Iterable[str] = ()) -> tuple[LaunchPlan, ...]:
        """Plan the launches in order; trials whose keys are `done` are left out."""

    def expected_s(self, launches: Sequence[LaunchPlan]) -> float:
        """Estimate the seconds of these launches."""


L = TypeVar("L", bound=PlannedSpec)


class ListedExperiment(Experiment[O, L]):
    """Each launch is measured on a bench made for it."""

    bench: ClassVar[Callable[..., Any]]
    again: str  # the words of the command that resumes a run
    set_env: str | None = None
    launches: tuple[LaunchPlan, ...]

    def prepare(self, asked: L, earlier: Result | None) -> L:
        self.launches = asked.plan(done(earlier))
        return asked

    def sitting(self) -> Sitting:
        def work(place: Place) -> Plan[Any, Any]:
            bench = partial(type(self).bench, self.asked, place.folder, place.run_id)
            return plan_listed(self.launches, bench, self.asked.expected_s)

        return Sitting(
            self.asked.to_json(),
            list_trials(self.asked.plan()),
            work,
            self.earlier,
            left=bool(self.launches),
            again=self.again,
            set_env=self.set_env,
        )


# Kinds that measure a suite, on our own clusters or on services that are up already.

S = TypeVar("S", bound=SuiteOptions)

TOML: Final = "toml"
"""The form of a dry run that is a suite file."""


class SuiteExperiment(Experiment[S, Suite]):
    """A kind that measures a suite; its class holds what differs from a run of rows or ladders."""

    part: ClassVar[str] = ""  # the field that its suites have
    children_every_s: ClassVar[float] = 1.0  # between looks for processes that come later
    agenda: Agenda

    def clusters(self, **fields: Any) -> ServedClusters:
        """Make what measures the agenda, from the fields that all kinds have."""
        return ServedClusters(**fields)

    def suite(self) -> Suite:
        """Read what is measured, wherever its load comes from. Raises BadInput."""
        raise NotImplementedError

    def check(self, suite: Suite) -> None:
        """Raise BadInput for a suite of another kind."""

    def read(self) -> Suite:
        load_on = read_load_on(self.options.load_on, self.options.load_nodes)
        return replace(self.suite(), load_on=load_on)

    def restore(self, stored: Mapping[str, Any]) -> Suite:
        return Suite.from_json(stored)

    def prepare(self, asked: Suite, earlier: Result | None) -> Suite:
        options = self.options
        if not asked.services:
            self.check(asked)
        if self.part and getattr(asked, self.part) is None:
            raise BadInput(f"the stored suite cannot be resumed: suite.{self.part} is missing")
        self.profile = targets_of(options.profile) if isinstance(options, RowOptions) else ()
        self.trace = options.trace
        if self.trace is None and options.trace_out is not None:
            raise BadInput("--trace-out: goes with --trace")
        check_load(asked, self.trace)
        self.agenda = self.plan_agenda(asked, earlier)
        if options.format == TOML and not options.dry_run:
            raise BadInput(f"--format: {TOML} goes with --dry-run")
        return asked

    def plan_agenda(self, suite: Suite, earlier: Result | None) -> Agenda:
        """Plan what is done with each row: all, or what an earlier sitting lacks."""
        profile = bool(self.profile)
        if earlier is not None:
            return rest_of(earlier, suite, profile)
        return Agenda(suite, plan(suite), profile)

    def plan_lines(self) -> Iterator[str]:
        agenda, suite, ladder = self.agenda, self.asked, self.asked.ladder
        by_count = suite.requests_per_client is not None

        def describe(rows: Sequence[PlannedTrial]) -> list[str]:
            if ladder is not None:
                return [ladder.text("clients" if by_count else "users")]
            return [
                f"{trial.row.label} ({trial.row.client}{', profiled' if profiled else ''})"
                for trial, profiled in agenda.list_loads(rows)
            ]

        yield from list_launches(agenda.launches, describe)
        repeated = [profiled for _, profiled in agenda.loads()]
        again = f", {sum(repeated)} of them profiled repetitions" if any(repeated) else ""
        guess = "about " if ladder is not None and ladder.steps is None else ""
        length = f"{suite.windows} x {suite.window_s:g} s"
        if by_count:
            length = (
                f"{suite.requests_per_client} requests a client, {suite.max_row_s:g} s at most,"
            )
        shaped = sum(place.shape != (None, None) for place in suite.places or ())
        length += f" ({shaped} of windows of their own)" if shaped else ""
        noun = "service" if suite.services else "cluster"
        yield (
            f"{guess}{counted(len(repeated), 'trial')} of {length} on "
            f"{counted(len(suite.services or agenda.launches), noun)}{again}; "
            f"about {duration_text(agenda.expected_s())} in all"
        )
        if not by_count:
            timing = Timing(0, 0, suite.windows, suite.window_s).stretchable(suite.quick)
            slow_s, most_s = suite.window_s / timing.responses, timing.stretched_s
            yield f"a row of responses over {slow_s:.2g} s takes longer, up to {most_s:g} s"

    def dry_run(self) -> int:
        """Print the plan, or the command line as a suite file. BadInput where no file can be."""
        options, suite = self.options, self.asked
        if options.format != TOML:
            urls = (f"{name}: {hide_in_text(asked.url)}" for name, asked in suite.services.items())
            out = None if self.earlier else options.out
            return print_plan((*urls, *self.plan_lines()), out, suite.slo)
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

    def sitting(self) -> Sitting:
        options, suite = self.options, self.asked
        again = options.command
        again += f" --profile {','.join(self.profile)}" if self.profile else ""
        again += "" if self.trace is None else f" --trace {self.trace:g}"
        return sitting_of(
            self.agenda,
            self.clusters,
            sample=not options.no_sample,
            metrics=options.serve_metrics,
            profile=self.profile,
            trace=self.trace,
            children_every_s=self.children_every_s,
            earlier=self.earlier,
            rounds=None if self.earlier is None else suite.launches,
            again=None if suite.services else again,
            log_requests=options.log_requests,
        )

    def breaches(self, view: View) -> Sequence[str]:
        """List what breaks the gate of the kind."""
        return ()

    def show(self, result: Result, folder: Path) -> int:
        self.report.show(looked := self.report.report(result, folder))
        return close_gate(self.breaches(looked.view))


def check_load(suite: Suite, trace: float | None) -> None:
    """Raise BadInput where a suite's load cannot come from the named nodes, or cannot be traced."""
    if suite.load_on is not None and any(row.protocol in HANDLES for row in suite.rows):
        raise BadInput("--load-on: the load of a handle is a driver on this host")
    if trace and suite.load_on is not None:
        raise BadInput("--trace: the times of a load from nodes are of another clock")
    if trace and not any(client_of(row) == "raw" for row in rows_of(suite)):
        raise BadInput("--trace: is for rows of the raw client, such as raw:8")
    for name, request in suite.services.items() if trace is not None else ():
        service = Service(name, request)
        if service.marks_folder is None:
            there = "the Serve there marks none"
            why = there if service.processes() else "no Serve of this machine answers"
            raise BadInput(
                f"--trace: {hide_in_text(request.url)}: {why}; serve-bench noop --blocking "
                "--trace starts one that does"
            )


def sitting_of(
    agenda: Agenda,
    clusters: Callable[..., ServedClusters],
    *,
    sample: bool,
    metrics: bool,
    profile: tuple[str, ...] = (),
    trace: float | None = None,
    children_every_s: float = 1.0,
    **more: Any,
) -> Sitting:
    """Make the sitting that measures an agenda.

    `sample`: CPU, memory and GPU during each load; `metrics`: Serve's own around it; `profile`:
    targets of a profiled repetition of each row. `trace`: the share of requests whose way through
    Serve is marked; 0: of those alone that other loads choose; None: of none. `more`: other fields
    of the sitting. Raises BadInput where an interpreter has no Ray."""
    suite = agenda.suite

    def work(place: Place) -> Plan[Any, Any]:
        inside = Inside(
            place.folder,
            marks(place.run_id),
            sample=sample,
            profile=profile,
            metrics=metrics,
            children_every_s=children_every_s,
        )
        return clusters(
            agenda=agenda,
            run_id=place.run_id,
            folder=place.folder,
            inside=inside,
            place=place.source,
            trace=trace,
        ).plan()

    for variant in suite.variants if agenda.launches and not suite.services else ():
        check_interpreter(variant)
        if trace is not None:
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
