"""What `press --url` does with what its flags say: the same requests to a service of one's own.

The service takes the same request as ours: POST, JSON, so many samples of two strings each
(docs/press.md shows one). Any answer with status 200 counts.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from serve_bench.cli.press import check_numbers, check_reach, ladder_of

if TYPE_CHECKING:
    from serve_bench.cli.show import Shown

SAMPLES, EACH, MAX_ROW_S, TIMEOUT_MS = 15, 100, 60.0, 200_000.0


def press_urls(given: dict[str, object], shown: Shown) -> int:
    """Presses services that are there already. Returns the exit code."""
    from serve_bench.cli.ladder_flags import services_of
    from serve_bench.cli.ladder_url import UrlWish, run_urls
    from serve_bench.core.ladder import COLLAPSE_RUNS, PRESS, Ladder
    from serve_bench.core.press_request import bodies
    from serve_bench.core.trial import JSON, row_timing
    from serve_bench.runner.load_place import read_load_on

    check_numbers(given)
    ladder = ladder_of(given["clients"], bool(given["quick"])) or Ladder(steps=PRESS)
    check_reach(ladder, "--clients")
    urls, headers = _texts(given["url"]), _texts(given["header"])
    samples = int(_number(given["samples"], SAMPLES))
    asked = bodies({"rows_per_request": samples, "sparse_features": 2})
    services = tuple(
        replace(
            one,
            request=replace(
                one.request, method="POST", headers=(*JSON, *one.request.headers), bodies=asked
            ),
        )
        for one in services_of(urls, headers, users=False)
    )
    out, log, place = given["out"], given["log_requests"], given["load_on"]
    wish = UrlWish(
        command="press",
        services=services,
        ladder=replace(ladder, runs=COLLAPSE_RUNS),
        timing=row_timing(_number(given["max_row_seconds"], MAX_ROW_S)),
        out=out if isinstance(out, Path) else None,
        sample=not given["no_sample"],
        each=int(_number(given["requests_per_client"], EACH)),
        timeout_s=_number(given["timeout_ms"], TIMEOUT_MS) / 1000.0,
        log_requests=log if isinstance(log, Path) else None,
        load_on=read_load_on(None if place is None else str(place), _whole(given["load_nodes"])),
    )
    return run_urls(wish, shown)


def _texts(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _number(value: object, default: float) -> float:
    return float(value) if isinstance(value, int | float) else default
