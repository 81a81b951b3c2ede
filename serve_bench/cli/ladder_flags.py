"""The flags of commands that climb ladders (recsys, sweep): users, seconds, services by URL.

Rule: text in, value out, or BadInput in one line that names the flag.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from serve_bench.cli.load_flags import header_of
from serve_bench.cli.matrix_flags import check_number
from serve_bench.core.app_spec import USERS
from serve_bench.core.errors import BadInput
from serve_bench.core.ladder import Ladder, parse_ladder
from serve_bench.core.load_spec import Timing
from serve_bench.core.request_spec import Request, SpecError
from serve_bench.runner.url import Service

#: --quick: steps of 3 s, and no refinement around the best.
QUICK_DURATION_S = 3.0
DURATION_S = 20.0
WARMUP_MIN_S, WARMUP_MAX_S = 1.0, 5.0


def ladder_of(users: str | None, quick: bool, start: int = 10, runs: int = 1) -> Ladder | None:
    """What --users and --quick say of the ladder; None: as in the suite. `runs`: how often a step
    is measured that has fallen."""
    if users is None and not quick:
        return None
    ladder = replace(parse_ladder(users or "auto", "--users"), start=start, runs=runs)
    return replace(ladder, refinements=0) if quick else ladder


def timing_of(duration: object, quick: bool) -> Timing | None:
    """What --duration and --quick say of a step; None: as in the suite. Windows of about a second;
    at least three, or no spread could be told."""
    if duration is None and not quick:
        return None
    seconds = duration if isinstance(duration, int | float) else QUICK_DURATION_S
    check_number("--duration", seconds, 0.5, 86_400)
    windows = max(3, round(seconds))
    return Timing(WARMUP_MIN_S, WARMUP_MAX_S, windows, seconds / windows)


def services_of(urls: Sequence[str], headers: Sequence[str], users: bool) -> tuple[Service, ...]:
    """Each `NAME=URL` as a service; with `users` they are asked for in turn."""
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
    asked = tuple(f"{parts.path or '/'}?user_id={user}" for user in USERS) if users else ()
    sent = tuple(header_of(one) for one in headers)
    try:
        request = Request(url, headers=sent, expect_status=(200,), paths=asked)
    except SpecError as error:
        raise BadInput(f"--url: {str(error).removeprefix('url: ')}") from None
    return Service(name.strip(), request)
