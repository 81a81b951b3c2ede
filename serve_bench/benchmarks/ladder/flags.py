"""Commands that climb ladders (recsys, sweep, press): on launched clusters, or with `--url` on
services that are there already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from serve_bench.cli import experiment
from serve_bench.cli.flag_values import header_of
from serve_bench.cli.options import LadderOptions
from serve_bench.cli.rows import add_flags, keys_of, named_urls, service_suite
from serve_bench.core.app_spec import USERS
from serve_bench.core.errors import BadInput
from serve_bench.core.ladder import Ladder, parse_ladder
from serve_bench.core.load_spec import Timing
from serve_bench.core.plan import Suite
from serve_bench.core.request_spec import Request, SpecError
from serve_bench.runner.service import Service
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
    return add_flags(content.set("load.users", options.users, "--users"), options)


def measure(
    options: LadderOptions,
    suite: Callable[[], Suite],
    services: Callable[[], Suite],
    check: Callable[[Suite], None] | None = None,
) -> int:
    """Measures `suite` on launched clusters, or with --url the one of `services`. Returns the exit
    code. `check`: see experiment.measure. Raises BadInput on flags that go with --url alone."""
    if options.header and not options.url:
        raise BadInput("-H: is for --url")
    return experiment.measure(options, services if options.url else suite, check)


def url_suite(options: LadderOptions, ladder: Ladder, *, users: bool = False) -> Suite:
    """The suite of --url, with the timing of --duration and --quick. Raises BadInput."""
    services = services_of(options.url or (), options.header or (), users=users)
    timing = timing_of(options.duration, options.quick)
    return service_suite(
        options.command,
        {service.name: service.request for service in services},
        windows=timing.windows,
        window_s=timing.window_s,
        warmup_min_s=WARMUP_MIN_S,
        warmup_max_s=WARMUP_MAX_S,
        launches=keys_of(options).launches,
        ladder=ladder,
        slo=options.slo_source,
        quick=options.quick,
    )


def services_of(urls: Sequence[str], headers: Sequence[str], users: bool) -> tuple[Service, ...]:
    """Each `NAME=URL` as a service; with `users` for one user after the other."""
    sent, services = tuple(header_of(header) for header in headers), []
    for name, url in named_urls(urls).items():
        try:
            request = Request(url, headers=sent, expect_status=(200,))
        except SpecError as error:
            raise BadInput(f"--url: {str(error).removeprefix('url: ')}") from None
        parts = urlsplit(url)
        if users and (parts.query or parts.fragment):
            raise BadInput(f"--url: {url!r} is not allowed; ?user_id=... is added to it")
        paths = [f"{parts.path or '/'}?user_id={user}" for user in USERS] if users else ()
        services.append(Service(name, replace(request, paths=tuple(paths))))
    return tuple(services)
