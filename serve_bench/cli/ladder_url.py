"""What `--url` of recsys and sweep does once its flags are understood: climb, record, print."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from serve_bench.cli.measure import FAILED, INTERRUPTED, run_mark, signals
from serve_bench.cli.progress import make_observer
from serve_bench.cli.run_record import run_record
from serve_bench.cli.show import check_target, print_report, write_perf_metrics
from serve_bench.climb import Climb
from serve_bench.ladder import Ladder
from serve_bench.load_spec import Timing
from serve_bench.store import RunFolder, StoreError, read
from serve_bench.url_runner import Service, UrlLadders


@dataclass(frozen=True)
class UrlWish:
    """Services that are there already, and the ladder for each. `command`: who asks."""

    command: str
    services: tuple[Service, ...]
    ladder: Ladder | None
    timing: Timing | None
    out: Path | None
    sample: bool


def run_urls(
    wish: UrlWish, format: str, *, published: bool = False, perf_metrics: Path | None
) -> int:
    """Measures all services, prints the report, and returns the exit code."""
    if perf_metrics is not None:
        check_target(perf_metrics, "--perf-metrics")
    assert wish.ladder is not None and wish.timing is not None, (
        "nothing but a suite leaves them out"
    )
    interrupted = False
    folder = RunFolder.create(wish.out, now=datetime.now(UTC))
    with signals():
        with folder, run_mark() as run_id, make_observer() as observer:
            first = [Climb(wish.ladder, one.name, 1, {}).next() for one in wish.services]
            suite = {
                "name": wish.command,
                "urls": {one.name: one.request.url for one in wish.services},
                "ladder": asdict(wish.ladder),
                "timing": asdict(wish.timing),
            }
            plan = tuple(planned for planned in first if planned is not None)
            folder.append(run_record(folder, wish.command, plan, suite))
            ladders = UrlLadders(
                wish.services, wish.ladder, wish.timing, folder, run_id, observer, wish.sample
            )
            try:
                ladders.run()
            except KeyboardInterrupt:
                interrupted = True
            except StoreError as error:  # a full disk: what is there is reported all the same
                print(f"serve-bench: {error}", file=sys.stderr)
                ladders.failed = True
        result = read(folder.path)
        print_report(result, format, folder.path, published=published)
        if perf_metrics is not None:
            write_perf_metrics(result, perf_metrics)
    if interrupted:
        print("serve-bench: interrupted: the figures end there", file=sys.stderr)
        return INTERRUPTED
    return FAILED if ladders.failed else 0
