"""Commands that measure rows of cells on clusters that they launch: micro, run, sweep, recsys,
press and noop. From flags and a suite to a sitting, and the plan that a dry run prints."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from serve_bench.cli import print_note
from serve_bench.cli.flag_values import names, share_of
from serve_bench.cli.options import LadderOptions, RowOptions, SloOptions, StreamOptions
from serve_bench.cli.show import ReportRequest
from serve_bench.cli.sitting import Place, Sitting, agenda_lines, print_plan, request_of, sit
from serve_bench.core.axes import MODEL_APPS, axis_flags
from serve_bench.core.errors import BadInput
from serve_bench.core.plan import Suite, client_of, plan, rows_of
from serve_bench.core.result import HANDLES, Result, Trial
from serve_bench.core.variants import parse_env
from serve_bench.observing.inside import Inside
from serve_bench.observing.profiler import parse_targets, py_spy, why_not_allowed
from serve_bench.runner.agenda import Agenda, rest_of
from serve_bench.runner.load_source import LoadOn, read_load_on
from serve_bench.runner.model_needs import with_device
from serve_bench.runner.runner import Plan
from serve_bench.runner.served_bench import ServedClusters
from serve_bench.serving.launch_spec import check_interpreter, check_tracing
from serve_bench.serving.server import Serving
from serve_bench.serving.strays import marks
from serve_bench.spec.content import Content
from serve_bench.spec.suite import Around, SuiteKeys, read_suite
from serve_bench.store.files import read_toml, suite_file

QUICK_WINDOWS, QUICK_WINDOW_S = 3, 0.5


@dataclass(frozen=True)
class RowsRequest:
    """A suite to be measured, where its load comes from, and what is looked at beside it.

    `sample`: CPU, memory and GPU beside each load; `metrics`: Serve's own around it; `profile`:
    targets of a profiled repetition of each row; `load_on`: nodes of a Ray cluster; None: of none.
    `trace`: the share of requests whose way through Serve is marked; 0: of those alone that other
    loads choose; None: of none.
    """

    suite: Suite
    load_on: LoadOn | None = None
    sample: bool = True
    metrics: bool = False
    profile: tuple[str, ...] = ()
    trace: float | None = None

    def __post_init__(self) -> None:
        if self.load_on is not None and any(one.protocol in HANDLES for one in self.suite.rows):
            raise BadInput("--load-on: the load of a handle is a driver on this host")
        if self.trace and self.load_on is not None:
            raise BadInput("--trace: the times of a load from nodes are of another clock")
        if self.trace and not any(client_of(row) == "raw" for row in rows_of(self.suite)):
            raise BadInput("--trace: is for rows of the raw client (--clients raw:8)")

    def to_json(self) -> dict[str, Any]:
        """Plain content for the Run record."""
        place = None if self.load_on is None else asdict(self.load_on)
        return self.suite.to_json() | {"load_on": place}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RowsRequest:
        """The reverse, for going on with a stored run."""
        content = dict(data)
        load_on = content.pop("load_on", None)
        return cls(Suite.from_json(content), None if load_on is None else LoadOn(**load_on))

    def agenda(self, earlier: Result | None) -> Agenda:
        """What is done with each row: all, or what an earlier sitting lacks."""
        if earlier is not None:
            return rest_of(earlier, self.suite, bool(self.profile))
        return Agenda(self.suite, plan(self.suite), bool(self.profile))


def add_axis_flags(content: Content, options: SloOptions) -> Content:
    """The content of a suite file with the flags of axes over it."""
    flags = axis_flags(options.command)
    axes = {name: flags[name] for name in options.texts if name in flags}
    if any(flag.key.startswith("matrix.") for flag in axes.values()):
        content = content.without("cells", "matrix")
    for name, flag in axes.items():
        content = content.set(flag.key, flag.parts(options.texts[name]), flag.where)
    if isinstance(options, StreamOptions) and options.chat:
        content = content.set("load.protocol", ["stream"], "--openai")
        content = content.set("load.openai", True, "--openai")
    return content


def add_flags(content: Content, options: SloOptions) -> Content:
    """The content of a suite file with what the flags of all these commands say over it: axes,
    variants, launches, objectives."""
    content = add_axis_flags(content, options)
    content = content.over("env", parse_env(getattr(options, "env", None) or (), "--env"), "--env")
    variants = list(names(getattr(options, "variant", None)))
    content = content.set("variant", variants or None, "--variant")
    content = content.set("slo", options.slo_source, "--slo")
    given = {name: getattr(options, name, None) for name in SuiteKeys.options()}
    return SuiteKeys.add_flags(content, {**given, "quick": given["quick"] or None})


def add_row_flags(content: Content, options: RowOptions) -> Content:
    """The same, with clients and windows."""
    if options.quick:
        content = content.set("load.windows", QUICK_WINDOWS, "--quick")
        content = content.set("load.window_seconds", QUICK_WINDOW_S, "--quick")
    if options.clients is not None:
        content = content.set("load.clients", list(names(options.clients)), "--clients")
    return add_flags(content, options)


def content_of(name: str) -> Content:
    """A suite file, by path or name. Raises BadInput."""
    file = suite_file(name)
    return Content(file.name if file.name == f"{name}.toml" else str(file), read_toml(file))


def suite_of(content: Content, around: Around | None = None) -> Suite:
    """The suite of a file and the flags over it. Raises BadInput before anything starts."""
    return known_device(read_suite(content, around))


def known_device(suite: Suite) -> Suite:
    """The suite with the device of its model, where that is "auto". Raises BadInput."""
    if suite.app.name in MODEL_APPS:  # torch takes seconds to load
        print_note("asking torch which device it has")
    return with_device(suite)


def targets_of(profile: str | None) -> tuple[str, ...]:
    """The targets of `--profile`. Raises BadInput on an unknown one, without py-spy, or where it
    may not look into processes."""
    if profile is None:
        return ()
    targets = parse_targets(profile, "--profile")
    py_spy()
    reason = why_not_allowed(os.getpid())
    if reason is not None:
        raise BadInput(f"--profile: {reason}")
    return targets


def measure(
    options: RowOptions | LadderOptions,
    report: ReportRequest,
    suite: Callable[[], Suite],
    *,
    check: Callable[[Suite], None] | None = None,
    log_requests: Path | None = None,
) -> int:
    """Measures what the options ask for, or prints the plan of it. Returns the exit code.

    `suite`: what the flags ask for; `check`: raises BadInput for a suite of another kind.
    """
    request, earlier = request_of(
        options,
        from_flags=lambda: RowsRequest(suite(), read_load_on(options.load_on, options.load_nodes)),
        from_record=RowsRequest.from_json,
        content=lambda request, _: {"load_on": None, **request.to_json()},
    )
    if check is not None:
        check(request.suite)
    profile = targets_of(options.profile) if isinstance(options, RowOptions) else ()
    request = replace(
        request,
        sample=not options.no_sample,
        metrics=options.serve_metrics,
        profile=profile,
        trace=share_of(options.trace, options.trace_out),
    )
    if options.dry_run:
        lines = agenda_lines(request.suite, request.agenda(earlier))
        return print_plan(lines, None if earlier else options.out, request.suite.slo)
    again = options.command
    again += f" --profile {','.join(profile)}" if profile else ""
    again += "" if request.trace is None else f" --trace {request.trace:g}"
    sitting = sitting_of(request, earlier)
    return sit(replace(sitting, again=again, log_requests=log_requests), options, report.close)


def sitting_of(
    request: RowsRequest,
    earlier: Result | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    after_cell: Callable[[Serving, Sequence[Trial]], None] | None = None,
) -> Sitting:
    """The sitting that measures a request. Raises BadInput where an interpreter has no Ray."""
    suite, agenda = request.suite, request.agenda(earlier)

    def work(place: Place) -> Plan[Any, Any]:
        inside = Inside(
            place.folder,
            marks(place.run_id),
            sample=request.sample,
            profile=request.profile,
            metrics=request.metrics,
        )
        served = ServedClusters(
            agenda,
            place.run_id,
            place.folder,
            host=host,
            port=port,
            after_cell=after_cell,
            inside=inside,
            place=place.source,
            trace=request.trace,
        )
        return served.plan()

    if agenda.launches:
        for variant in suite.variants:
            check_interpreter(variant)
            if request.trace is not None:
                check_tracing(variant)
    return Sitting(
        request.to_json(),
        [at for one in plan(suite) for _, trials in one.cells for at in trials],
        work,
        earlier,
        left=bool(agenda.launches),
        load_on=request.load_on,
    )
