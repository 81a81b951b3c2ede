"""Commands that climb ladders (recsys, sweep, press): on launched clusters, or with `--url` on
services that are there already."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from serve_bench.analysis.climb import Climb
from serve_bench.cli import rows
from serve_bench.cli.flag_values import check_client, content_of, header_of, in_flags
from serve_bench.cli.options import LadderOptions, ServiceOptions, StreamOptions
from serve_bench.cli.show import ReportRequest
from serve_bench.cli.sitting import Place, Sitting, sit
from serve_bench.core.app_spec import USERS
from serve_bench.core.errors import BadInput
from serve_bench.core.ladder import Ladder, parse_ladder
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.plan import Suite
from serve_bench.core.request_spec import Request, SpecError
from serve_bench.core.result import HANDLES, Protocol, Traffic
from serve_bench.runner.load_source import LoadOn, read_load_on
from serve_bench.runner.runner import Plan
from serve_bench.runner.url_bench import Service, UrlLadders
from serve_bench.spec.content import Content

#: --quick: steps of 3 s, and no refinement around the best.
QUICK_DURATION_S = 3.0
DURATION_S = 20.0
WARMUP_MIN_S, WARMUP_MAX_S = 1.0, 5.0


def ladder_of(users: str, quick: bool, start: int = 10, runs: int = 1) -> Ladder:
    """The ladder of --users and --quick. `runs`: how often a step is measured that has fallen."""
    ladder = replace(parse_ladder(users, "--users"), start=start, runs=runs)
    return replace(ladder, refinements=0) if quick else ladder


def timing_of(duration_s: float | None, quick: bool) -> Timing:
    """The step of --duration and --quick, in windows of about a second: at least three, for
    a spread."""
    seconds = duration_s or (QUICK_DURATION_S if quick else DURATION_S)
    windows = max(3, round(seconds))
    return Timing(WARMUP_MIN_S, WARMUP_MAX_S, windows, seconds / windows).stretchable(quick)


def add_climb_flags(content: Content, options: LadderOptions) -> Content:
    """The content of a suite with the flags of a load that grows, in steps of --duration."""
    place = "--duration" if options.duration is not None else "--quick"
    if options.duration is not None or options.quick or "load.windows" not in content:
        timing = timing_of(options.duration, options.quick)
        content = content.set("load.windows", timing.windows, place)
        content = content.set("load.window_seconds", timing.window_s, place)
    return rows.add_flags(content.set("load.users", options.users, "--users"), options)


@dataclass(frozen=True)
class UrlRequest:
    """Services that are there already, and the ladder for each. `each`: requests of each client,
    where they end a step; `timeout_s`: of a request."""

    services: tuple[Service, ...]
    ladder: Ladder
    timing: Timing
    each: int | None = None
    timeout_s: float = 30.0
    load_on: LoadOn | None = None
    slo: str | None = None

    def to_json(self, command: str) -> dict[str, Any]:
        """Plain content for the Run record; without `slo` where none was given."""
        return {
            "name": command,
            "urls": {one.name: one.request.url for one in self.services},
            "ladder": asdict(self.ladder),
            "timing": asdict(self.timing),
            "requests_per_client": self.each,
            "max_row_s": self.timing.window_s,
            "timeout_s": self.timeout_s,
            "load_on": None if self.load_on is None else asdict(self.load_on),
            **({} if self.slo is None else {"slo": self.slo}),
        }


def measure(
    options: LadderOptions,
    suite: Callable[[], Suite],
    urls: Callable[[], UrlRequest],
    *,
    check: Callable[[Suite], None] | None = None,
    log_requests: Path | None = None,
) -> int:
    """Measures `suite` on launched clusters, or with --url the services of `urls`. Returns the exit
    code. `check`: see rows.measure. Raises BadInput on flags that do not go with --url, or go with
    it alone."""
    report = options.report_request()
    if not options.url:
        if options.header:
            raise BadInput("-H: is for --url")
        return rows.measure(options, report, suite, check=check, log_requests=log_requests)
    options.check_url()
    return _measure_urls(options, report, urls(), log_requests)


def url_request(options: LadderOptions, ladder: Ladder, *, users: bool = False) -> UrlRequest:
    """The request of --url, with the timing of --duration and --quick. Raises BadInput."""
    return UrlRequest(
        services_of(options.url or (), options.header or (), users=users),
        ladder,
        timing_of(options.duration, options.quick),
        load_on=read_load_on(options.load_on, options.load_nodes),
        slo=options.slo_source,
    )


def _measure_urls(
    options: LadderOptions, report: ReportRequest, request: UrlRequest, log_requests: Path | None
) -> int:
    ladder, each = request.ladder, request.each
    first = [Climb(ladder, one.name, 1, {}, each).next() for one in request.services]

    def work(place: Place) -> Plan[Any, Any]:
        ladders = UrlLadders(
            request.services,
            ladder,
            request.timing,
            place.folder,
            place.run_id,
            not options.no_sample,
            each=each,
            timeout_s=request.timeout_s,
            place=place.source,
        )
        return ladders.plan()

    sitting = Sitting(
        request.to_json(options.command),
        [planned for planned in first if planned is not None],
        work,
        load_on=request.load_on,
        set_env=None,
        log_requests=log_requests,
    )
    return sit(sitting, options, report.close)


def services_of(urls: Sequence[str], headers: Sequence[str], users: bool) -> tuple[Service, ...]:
    """Each `NAME=URL` as a service; with `users` for one user after the other."""
    services = tuple(_service(text, headers, users) for text in urls)
    names = [service.name for service in services]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"--url: the name {name} is given twice")
    return services


def _service(text: str, headers: Sequence[str], users: bool) -> Service:
    name, equals, url = text.partition("=")
    if not equals or not name.strip() or "://" in name:
        raise BadInput(f"--url: {text!r} is not allowed; it takes NAME=URL")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise BadInput(f"--url: {url!r} cannot be read: {error}") from None
    if users and (parts.query or parts.fragment):
        raise BadInput(f"--url: {url!r} is not allowed; ?user_id=... is added to it")
    paths = tuple(f"{parts.path or '/'}?user_id={user}" for user in USERS) if users else ()
    sent = tuple(header_of(one) for one in headers)
    try:
        request = Request(url, headers=sent, expect_status=(200,), paths=paths)
    except SpecError as error:
        raise BadInput(f"--url: {str(error).removeprefix('url: ')}") from None
    return Service(name.strip(), request)


def traffic_of(options: StreamOptions) -> Traffic:
    """The protocol of the flags, of a service that is up already. Raises BadInput."""
    (protocol,) = options.protocols()
    if protocol in HANDLES:
        raise BadInput("--protocol: handle: is for apps that are launched")
    return Traffic(protocol=cast("Protocol", protocol))  # the axis has checked it


def load_of(options: ServiceOptions, request: Request, timeout_s: float) -> Load:
    """The load of one client on a service, with protocol, method and body of the flags. Raises
    BadInput."""
    grpc = traffic_of(options).client == "grpc"
    body = b"" if options.body is None else content_of(options.body, "--body")
    method = options.method or ("POST" if grpc or body else "GET")
    statuses = () if grpc else request.expect_status
    try:
        load = Load(
            replace(request, method=method.upper(), body=body, expect_status=statuses),
            client="grpc" if grpc else "raw",
            timeout_s=timeout_s,
            streaming=options.streaming(),
        )
    except SpecError as error:
        text = re.sub("^client grpc", "--protocol grpc:", re.sub("^url:", "--url:", str(error)))
        raise BadInput(in_flags(text)) from None
    check_client(load)
    return load
