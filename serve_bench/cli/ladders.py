"""Commands that climb ladders (recsys, sweep, press): their flags, and what `--url` does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from serve_bench.analysis.climb import Climb
from serve_bench.cli.flags import check_number, header_of
from serve_bench.cli.measure import place_of
from serve_bench.cli.progress import make_observer
from serve_bench.cli.show import Shown, draw_plots
from serve_bench.cli.sitting import FAILED, INTERRUPTED, run_mark, run_record, signals, work_off
from serve_bench.core.app_spec import USERS
from serve_bench.core.errors import BadInput
from serve_bench.core.ladder import Ladder, parse_ladder
from serve_bench.core.load_spec import Timing
from serve_bench.core.request_spec import Request, SpecError
from serve_bench.runner.load_place import LoadOn
from serve_bench.runner.requests_file import requests_file
from serve_bench.runner.runner import Runner
from serve_bench.runner.url import Service, UrlPlan
from serve_bench.store import RunFolder, read

# --------------------------------------------------------------------------------------------------
# The flags of commands that climb ladders (recsys, sweep): users, seconds, services by URL.
#
# Rule: text in, value out, or BadInput in one line that names the flag.

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


# --------------------------------------------------------------------------------------------------
# What `--url` of recsys, sweep and press does with what its flags say: climb, record, print.


@dataclass(frozen=True)
class UrlWish:
    """Services that are there already, and the ladder for each. `command`: who asks; `each`:
    requests of each client, where they end a step; `timeout_s`: of a request."""

    command: str
    services: tuple[Service, ...]
    ladder: Ladder | None
    timing: Timing | None
    out: Path | None
    sample: bool
    each: int | None = None
    timeout_s: float = 30.0
    log_requests: Path | None = None
    load_on: LoadOn | None = None


def run_urls(wish: UrlWish, shown: Shown) -> int:
    """Measures all services, prints the report, and returns the exit code."""
    assert wish.ladder is not None and wish.timing is not None, (
        "nothing but a suite leaves them out"
    )
    folder = RunFolder.create(wish.out, now=datetime.now(UTC))
    with signals():
        with (
            folder,
            requests_file(wish.log_requests) as requests,
            run_mark() as run_id,
            make_observer() as observer,
        ):
            first = [Climb(wish.ladder, one.name, 1, {}, wish.each).next() for one in wish.services]
            suite = {
                "name": wish.command,
                "urls": {one.name: one.request.url for one in wish.services},
                "ladder": asdict(wish.ladder),
                "timing": asdict(wish.timing),
                "requests_per_client": wish.each,
                "max_row_s": wish.timing.window_s,
                "timeout_s": wish.timeout_s,
                "load_on": None if wish.load_on is None else asdict(wish.load_on),
            }
            plan = tuple(planned for planned in first if planned is not None)
            folder.append(run_record(folder, wish.command, plan, suite))
            ladders = UrlPlan(
                wish.services,
                wish.ladder,
                wish.timing,
                folder.path,
                run_id,
                wish.sample,
                each=wish.each,
                timeout_s=wish.timeout_s,
                place=place_of(wish.load_on, folder.path, run_id),
            )
            runner = Runner(ladders, folder, observer, requests=requests)
            try:
                interrupted = work_off(runner)
            finally:
                ladders.place.close()
        result = read(folder.path)
        shown.show(result, folder.path)
        draw_plots(folder.path, result, published=shown.published)
    if interrupted:
        print("serve-bench: interrupted: the figures end there", file=sys.stderr)
        return INTERRUPTED
    return FAILED if runner.failed else 0
