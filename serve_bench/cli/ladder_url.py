"""What `--url` of recsys, sweep and press does with what its flags say: climb, record, print."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from serve_bench.analysis.climb import Climb
from serve_bench.cli.measure import place_of
from serve_bench.cli.plots import draw_plots
from serve_bench.cli.progress import make_observer
from serve_bench.cli.run_record import run_record
from serve_bench.cli.show import Shown
from serve_bench.cli.sitting import FAILED, INTERRUPTED, run_mark, signals, work_off
from serve_bench.core.ladder import Ladder
from serve_bench.core.load_spec import Timing
from serve_bench.runner.load_place import LoadOn
from serve_bench.runner.requests_file import requests_file
from serve_bench.runner.url import Service, UrlLadders
from serve_bench.store import RunFolder, read


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
            ladders = UrlLadders(
                wish.services,
                wish.ladder,
                wish.timing,
                folder,
                run_id,
                observer,
                wish.sample,
                each=wish.each,
                timeout_s=wish.timeout_s,
                requests=requests,
                place=place_of(wish.load_on, folder.path, run_id),
            )
            try:
                interrupted = work_off(ladders)
            finally:
                ladders.place.close()
        result = read(folder.path)
        shown.show(result, folder.path)
        draw_plots(folder.path, result, published=shown.published)
    if interrupted:
        print("serve-bench: interrupted: the figures end there", file=sys.stderr)
        return INTERRUPTED
    return FAILED if ladders.failed else 0
