"""What a load through a handle counts, against a handle with known answers."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

CLUSTER = Path(__file__).parent.parent / "serve_bench" / "cluster"
SPEC = {"expect": "1", "timeout_s": 0.2}
WINDOW_S = 0.05


class Handle:
    """Answers its first request at once, and its second one after so many seconds."""

    def __init__(self, second_s: float) -> None:
        self._waits = iter((0.0, second_s))

    def remote(self, _: int) -> Awaitable[int]:
        return asyncio.sleep(next(self._waits), 1)


@pytest.mark.parametrize(
    ("second_s", "in_flight", "failed"),
    [(0.1, 1, {}), (60.0, 0, {"timeout": 1})],
    ids=["answered after the windows", "never answered"],
)
def test_what_is_under_way_at_the_end_is_in_flight_unless_it_fails(
    second_s: float, in_flight: int, failed: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(CLUSTER))
    handles: Any = importlib.import_module("handles")
    client = handles._Client(Handle(second_s), SPEC)
    tally = asyncio.run(handles._until([client], SPEC, WINDOW_S, 1))
    assert (tally.windows, len(tally.latencies_ns)) == ([1], 1)
    assert (tally.in_flight, dict(tally.failed)) == (in_flight, failed)
    assert len(tally.examples) == len(failed)
