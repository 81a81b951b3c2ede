"""What a load through a handle counts, against a handle with known answers."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Awaitable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

CLUSTER = Path(__file__).parents[2] / "serve_bench" / "serving" / "cluster"
TIMEOUT_S = 0.2
SPEC = {"expect": "1", "timeout_s": TIMEOUT_S}
WINDOW_S = 0.05


class Handle:
    """Answers its first request at once, and its second one after so many seconds."""

    def __init__(self, second_s: float) -> None:
        self._waits = iter((0.0, second_s))

    def remote(self, _: int) -> Awaitable[int]:
        return asyncio.sleep(next(self._waits), 1)


@pytest.mark.parametrize(
    ("second_s", "latencies", "failed"),
    [(0.1, 2, {}), (60.0, 1, {"timeout": 1})],
    ids=["answered after the windows", "never answered"],
)
def test_what_is_under_way_at_the_end_is_followed_to_its_own(
    second_s: float, latencies: int, failed: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(CLUSTER))
    handles: Any = importlib.import_module("handles")
    client = handles._Client(Handle(second_s), SPEC)
    tally = asyncio.run(handles._until([client], SPEC, WINDOW_S, 1))
    assert (tally.windows, len(tally.latencies_ns)) == ([1], latencies)
    assert (tally.late, tally.late_failed, dict(tally.failed)) == (1, len(failed), failed)
    longest = max((*tally.latencies_ns, *tally.censored_ns))
    assert longest >= 1e9 * (0.1 if latencies == 2 else TIMEOUT_S)
    assert len(tally.censored_ns) == len(failed)
    assert 0 < tally.flown_ns <= WINDOW_S * 1e9
    assert len(tally.examples) == len(failed)


def test_the_drain_is_told_beside_the_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(CLUSTER))
    handle = Handle(0.1)  # its second answer comes 0.05 s after the window at the least
    serve = SimpleNamespace(get_app_handle=lambda app: handle)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(serve=serve))
    handles: Any = importlib.import_module("handles")
    spec = {**SPEC, "app": "a", "clients": 1, "warmup_s": 0.0, "windows": 1, "window_s": WINDOW_S}
    told = asyncio.run(handles._load(spec))
    assert told["seconds"] == WINDOW_S and told["drained_s"] >= 0.9 * WINDOW_S
    handle._waits = iter((0.0, 0.0))
    told = asyncio.run(handles._load({**spec, "requests_each": 2}))
    assert told["seconds"] > 0 == told["drained_s"]
