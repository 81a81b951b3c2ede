"""From the flags that commands share to a suite: of a file, or of services that are up already."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from serve_bench.cli import print_note
from serve_bench.cli.flag_values import names, read_slo_flag
from serve_bench.cli.options import LadderOptions, RowOptions, SloOptions, UrlLadderOptions
from serve_bench.core.app_spec import APPS, USERS
from serve_bench.core.axes import MODEL_APPS
from serve_bench.core.errors import BadInput
from serve_bench.core.ladder import Ladder, parse_ladder
from serve_bench.core.load_spec import Timing
from serve_bench.core.plan import Suite
from serve_bench.core.request_spec import Request, SpecError
from serve_bench.core.result import VariantUsed
from serve_bench.core.traffic import Row
from serve_bench.core.variants import parse_env
from serve_bench.observing.profiler import parse_targets, py_spy, why_not_allowed
from serve_bench.runner.model_needs import with_device
from serve_bench.spec.axes import axis_options
from serve_bench.spec.content import Content
from serve_bench.spec.request import RequestKeys
from serve_bench.spec.suite import Around, SuiteKeys, read_suite
from serve_bench.spec.target import read_service
from serve_bench.store.files import read_toml, suite_file

QUICK_WINDOWS, QUICK_WINDOW_S = 3, 0.5

#: --quick: steps of 3 s, and no refinement around the best.
QUICK_DURATION_S = 3.0
DURATION_S = 20.0
WARMUP_MIN_S, WARMUP_MAX_S = 1.0, 5.0


def add_axis_flags(content: Content, options: SloOptions) -> Content:
    """The content of a suite file with the flags of axes over it."""
    axes = axis_options(options.command)
    flags = [(axes[name], value) for name, value in options.given.items() if name in axes]
    if any(option.key.startswith("matrix.") for option, _ in flags):
        content = content.without("cells", "matrix")
    for option, value in flags:
        content = content.set(option.key, value, option.flag)
    return content


def add_flags(content: Content, options: SloOptions) -> Content:
    """The content of a suite file with what the flags that commands share say over it: axes,
    variants, objectives, the numbers of a suite, and of rows that are known beforehand clients and
    windows."""
    if isinstance(options, RowOptions) and options.quick:
        content = content.set("load.windows", QUICK_WINDOWS, "--quick")
        content = content.set("load.window_seconds", QUICK_WINDOW_S, "--quick")
    if isinstance(options, RowOptions) and options.clients is not None:
        content = content.set("load.clients", list(names(options.clients)), "--clients")
    if isinstance(options, UrlLadderOptions) and options.header and not options.url:
        raise BadInput("--header: is for --url")
    if isinstance(options, LadderOptions) and "users" in options.parameters():
        content = _add_steps(content, options)
    content = add_axis_flags(content, options)
    content = content.over("env", parse_env(getattr(options, "env", None) or (), "--env"), "--env")
    variants = list(names(getattr(options, "variant", None)))
    content = content.set("variant", variants or None, "--variant")
    content = content.set("slo", read_slo_flag(options), "--slo")
    keys = {name: getattr(options, name, None) for name in SuiteKeys.options()}
    return SuiteKeys.add_flags(content, {k: None if v is False else v for k, v in keys.items()})


def keys_of(options: SloOptions, **usual: Any) -> SuiteKeys:
    """The numbers that flags say of services that are up already; `usual`: of the table `load`,
    where no flag does. Raises BadInput."""
    return SuiteKeys.read(add_flags(Content(options.command, {"load": usual}), options))


def read_content(name: str) -> Content:
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


def _add_steps(content: Content, options: LadderOptions) -> Content:
    """The content of a suite with the flags of a load that grows, in steps of --duration."""
    place = "--duration" if options.duration is not None else "--quick"
    if options.duration is not None or options.quick or "load.windows" not in content:
        timing = timing_of(options.duration, options.quick)
        content = content.set("load.windows", timing.windows, place)
        content = content.set("load.window_seconds", timing.window_s, place)
    return content.set("load.users", options.users, "--users")


def named_urls(urls: Sequence[str], unnamed: str) -> dict[str, str]:
    """Each `NAME=URL` by its name. A single one without a name is called `unnamed`. BadInput."""
    named: dict[str, str] = {}
    for text in urls:
        _, url, name = read_service(text)
        if not name:
            if len(urls) > 1:
                raise BadInput(f"--url: {text!r} is not allowed; of several each is NAME=URL")
            name = unnamed
        if name in named:
            raise BadInput(f"--url: the name {name} is given twice")
        named[name] = url
    return named


def service_suite(
    command: str, services: Mapping[str, Request], rows: tuple[Row, ...] = (), **parts: Any
) -> Suite:
    """Services that are up already, as variants of a suite without settings. `parts`: the fields of
    the suite that say how they are loaded."""
    variants = tuple(map(VariantUsed, services))
    no_op = APPS["noop"]  # a suite has an app; nothing asks for this one
    return Suite(command, no_op, variants, ({},), rows, services=services, **parts)


def url_suite(options: UrlLadderOptions, ladder: Ladder, *, users: bool = False) -> Suite:
    """The suite of --url, with the timing of --duration and --quick. Raises BadInput."""
    launches, slo = keys_of(options).launches, read_slo_flag(options)
    services = requests_of(options.urls, options.header or (), users=users)
    suite = service_suite(options.command, services, launches=launches, slo=slo)
    return add_climb(suite, options, ladder)


def add_climb(suite: Suite, options: LadderOptions, ladder: Ladder) -> Suite:
    """A suite of services whose load grows, in steps of --duration and --quick."""
    timing = timing_of(options.duration, options.quick)
    return replace(
        suite,
        rows=(),
        windows=timing.windows,
        window_s=timing.window_s,
        warmup_min_s=WARMUP_MIN_S,
        warmup_max_s=WARMUP_MAX_S,
        ladder=ladder.of(suite.rows[0].traffic) if suite.rows else ladder,
        quick=options.quick,
    )


def requests_of(urls: Sequence[str], headers: Sequence[str], users: bool) -> dict[str, Request]:
    """The request of each `NAME=URL`; with `users` for one user after the other."""
    content = RequestKeys.add_flags(Content("--url"), {"header": [*headers] or None})
    sent, requests = RequestKeys.read(content).sent_headers, {}
    for name, url in named_urls(urls, "url").items():
        try:
            request = Request(url, headers=sent, expect_status=(200,))
        except SpecError as error:
            raise BadInput(f"--url: {str(error).removeprefix('url: ')}") from None
        parts = urlsplit(url)
        if users and (parts.query or parts.fragment):
            raise BadInput(f"--url: {url!r} is not allowed; ?user_id=... is added to it")
        paths = [f"{parts.path or '/'}?user_id={user}" for user in USERS] if users else ()
        requests[name] = replace(request, paths=tuple(paths))
    return requests
