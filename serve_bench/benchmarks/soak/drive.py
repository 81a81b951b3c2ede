"""What `serve-bench soak` does with its flags: plan, load, report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from serve_bench.benchmarks.capacity.drive import TIMEOUT_S
from serve_bench.benchmarks.ladder.flags import load_of, services_of, traffic_of
from serve_bench.benchmarks.own_app.command import OF_OWN_APPS
from serve_bench.benchmarks.own_app.flags import own_suite
from serve_bench.benchmarks.own_app.request import positive_s
from serve_bench.benchmarks.soak.bench import BETWEEN_S, SoakClusters, UrlSoak
from serve_bench.benchmarks.soak.command import SoakOptions
from serve_bench.benchmarks.soak.lens import gate
from serve_bench.cli import FAILED
from serve_bench.cli.flag_values import names, seconds_of
from serve_bench.cli.gate import close_gate
from serve_bench.cli.rows import add_flags, content_of, suite_of
from serve_bench.cli.show import ReportRequest
from serve_bench.cli.sitting import Place, Sitting, done, launch_lines, print_plan, request_of, sit
from serve_bench.core.errors import BadInput
from serve_bench.core.load_spec import Streaming
from serve_bench.core.plan import (
    LaunchPlan,
    Suite,
    duration_text,
    expected_s,
    label_of,
    parse_row,
    rows_of,
    without,
)
from serve_bench.core.redaction import hide_in_text
from serve_bench.core.result import PlannedTrial, Result, Row, Traffic
from serve_bench.core.schema import plain
from serve_bench.core.soak import (
    CONNECTIONS,
    LEAK,
    SoakSpec,
    block_length_s,
    planned_blocks,
    soak_row,
)
from serve_bench.observing.processes import behind
from serve_bench.runner.agenda import Agenda
from serve_bench.runner.load_source import LocalLoads
from serve_bench.runner.runner import Plan
from serve_bench.serving.launch_spec import check_interpreter

USUAL_S: Final = 3600.0
QUICK_S: Final = 60.0
LEAST_S: Final = 30.0
MOST_S: Final = 7 * 24 * 3600.0

FAIL_ON: Final = ("leak", "slo")

#: Flags that go with --url: nothing is launched.
WITH_URL: Final = frozenset(
    """url method header body slo protocol events event_timeout arrivals rate clients soak_time
    leak fail_on quick out dry_run live format""".split()
)


@dataclass(frozen=True)
class UrlSoakSuite:
    """A Serve that runs already, and how it is loaded."""

    urls: Mapping[str, str]
    soak: SoakSpec
    timeout_s: float
    name: str = "soak"
    slo: str | None = None
    streaming: Streaming | None = None


def run(options: SoakOptions) -> int:
    """Measures, prints the report, and returns the exit code. Raises BadInput before it begins."""
    report, fail_on = options.report_request(), _fail_on(options)
    if options.request_timeout_s is not None:
        positive_s(options.request_timeout_s, "--request-timeout-s")
    if options.url:
        return _url(options, report, fail_on)
    suite, earlier = request_of(
        options, from_flags=lambda: _suite(options), from_record=Suite.from_json
    )
    spec = suite.soak
    if spec is None:
        raise BadInput("the stored suite cannot be resumed: suite.soak is missing")
    launches = without(_launches(suite, spec), done(earlier))
    if options.dry_run:
        lines = _plan_lines(suite, spec, launches)
        return print_plan(lines, None if earlier else options.out, suite.slo)

    def work(place: Place) -> Plan[Any, Any]:
        agenda = Agenda(suite, launches)
        return SoakClusters(
            agenda, place.run_id, place.folder, place=place.source, spec=spec
        ).plan()

    for variant in suite.variants if launches else ():
        check_interpreter(variant)
    sitting = Sitting(
        suite.to_json(),
        [at for one in _launches(suite, spec) for _, blocks in one.cells for at in blocks],
        work,
        earlier,
        left=bool(launches),
        again="soak",
    )
    return sit(sitting, options, partial(_show, report, fail_on))


def _show(report: ReportRequest, fail_on: Sequence[str], result: Result, folder: Path) -> int:
    """Prints the report, and what breaks the gate. Returns the exit code of the gate; FAILED where
    it cannot be told."""
    report.close(result, folder)
    if "leak" not in fail_on or not result.trials:
        return 0
    broken, open_ = gate(result)
    code = close_gate(broken)
    if open_ and not code:
        close_gate([f"not judged: {open_}"])
        return FAILED
    return code


# From flags to a suite.


def _fail_on(options: SoakOptions) -> tuple[str, ...]:
    words = [word for text in options.fail_on or () for word in names(text)]
    for word in words:
        if word not in FAIL_ON:
            raise BadInput(f"--fail-on: {word!r} is not allowed; it takes {', '.join(FAIL_ON)}")
    if "slo" in words and options.slo is None and options.resume is None:
        raise BadInput("--fail-on: slo goes with --slo")
    return tuple(words)


def _spec(options: SoakOptions) -> SoakSpec:
    for_s = QUICK_S if options.quick else USUAL_S
    if options.soak_time is not None:
        if options.quick:
            raise BadInput("--quick: stands for --for")
        days = re.fullmatch(r"(\d+(?:\.\d*)?)d", options.soak_time.strip(), re.ASCII)
        text = f"{24 * float(days[1])}h" if days is not None else options.soak_time
        for_s = seconds_of(text, "--for")
        if not LEAST_S <= for_s <= MOST_S:
            raise BadInput(f"--for: {options.soak_time!r} is not allowed; it takes 30s to 7d")
    if options.rate is None and options.arrivals != "constant":
        raise BadInput("--arrivals: give --rate")
    return SoakSpec(
        for_s,
        block_length_s(for_s),
        "poisson" if options.arrivals == "poisson" else "constant",
        LEAK if options.leak is None else options.leak,
    )


def _row(options: SoakOptions, traffic: Traffic) -> Row:
    if options.rate is not None:
        if options.clients is not None:
            raise BadInput("--rate: an open loop has no --clients: give one of them")
        return soak_row(CONNECTIONS, options.rate, traffic)
    if options.clients is None:
        return soak_row(CONNECTIONS, None, traffic)
    row = parse_row(options.clients, traffic, "--clients")
    if row.client == "aiohttp":
        raise BadInput(f"--clients: {options.clients!r} is not allowed; it takes raw:N")
    return soak_row(row.connections, None, traffic)


def _suite(options: SoakOptions) -> Suite:
    spec = _spec(options)
    _row(options, Traffic())  # refused before an app is imported
    target = options.target
    if target is None:
        raise BadInput("TARGET: name noop, an app (module:app, path/file.py:app), or --url")
    suite = None
    if target != "noop":
        suite = own_suite(target, options, partial(add_flags, options=options))
    if suite is None:
        wrong = [name.replace("_", "-") for name in OF_OWN_APPS if getattr(options, name)]
        if wrong:
            raise BadInput(f"--{wrong[0]}: {target} measures an app that comes with the tool")
        if target != "noop":
            raise BadInput(f"TARGET: {target} is no suite of an app of your own; see noop")
        content = content_of("noop").set("cell.num_replicas", 1, "TARGET")
        suite = suite_of(add_flags(content, options))
    if len(suite.cells) > 1:
        raise BadInput(f"--option: a soak has one value of each, and this has {len(suite.cells)}")
    row = _row(options, rows_of(suite)[0].traffic)
    return replace(
        suite,
        rows=(row,),
        places=None,
        ladder=None,
        requests_per_client=None,
        requests=None,
        launches=1,
        windows=1,
        window_s=spec.block_s,
        warmup_min_s=0.0,
        warmup_max_s=0.0,
        soak=spec,
    )


def _launches(suite: Suite, spec: SoakSpec) -> tuple[LaunchPlan, ...]:
    (cell,), (row,) = suite.cells, suite.rows
    return tuple(
        LaunchPlan(
            variant, 1, ((cell, tuple(planned_blocks(spec, [variant.name], label_of(cell), row))),)
        )
        for variant in suite.variants
    )


def _plan_lines(suite: Suite, spec: SoakSpec, launches: Sequence[LaunchPlan]) -> Iterator[str]:
    for launch in launches:
        cells = (
            (label_of(cell), [_blocks_text(spec, suite.rows[0], len(blocks))])
            for cell, blocks in launch.cells
        )
        yield from launch_lines(launch.variant.name, launch.round, cells, launch.variant.env)
    yield f"about {duration_text(expected_s(suite, launches))} in all"


def _blocks_text(spec: SoakSpec, row: Row, blocks: int) -> str:
    return f"{row.label} ({row.client}): {blocks} blocks of {spec.block_s:g} s"


def _url(options: SoakOptions, report: ReportRequest, fail_on: Sequence[str]) -> int:
    options.check_url(WITH_URL)
    spec, traffic = _spec(options), traffic_of(options)
    row, url = _row(options, traffic), str(options.url)
    named = url if re.match(r"\w[\w.-]*=", url) else f"service={url}"
    (service,) = services_of((named,), options.header or (), users=False)
    name, request = service.name, service.request
    load = load_of(options, request, TIMEOUT_S)
    suite = UrlSoakSuite(
        {name: request.url}, spec, TIMEOUT_S, slo=options.slo_source, streaming=load.streaming
    )
    blocks = tuple(planned_blocks(spec, [name], {}, row))
    if options.dry_run:
        lines = [
            f"{name}: {hide_in_text(request.url)}",
            f"  {_blocks_text(spec, row, len(blocks))}",
        ]
        lines.append(f"about {duration_text(len(blocks) * (spec.block_s + BETWEEN_S))} in all")
        return print_plan(lines, options.out, suite.slo)
    if not behind(request.url):
        raise BadInput(f"--url: no Serve of this host answers at {hide_in_text(request.url)}")

    def work(place: Place) -> Plan[Any, Any]:
        assert isinstance(place.source, LocalLoads)
        return UrlSoak(name, load, spec, blocks, place.run_id, place.source).plan()

    listed: list[PlannedTrial] = list(blocks)
    sitting = Sitting(plain(suite), listed, work, set_env=None)
    return sit(sitting, options, partial(_show, report, fail_on))
