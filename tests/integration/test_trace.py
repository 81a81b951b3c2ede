"""Traced requests on a real Serve: hops of every kind, that add up, and nothing left behind."""

import re
from pathlib import Path

import pytest

from tests.integration.conftest import measure, run_checked

pytestmark = [pytest.mark.ray]

BATCH_WAIT_MS, FRONT_MS, DOWN_MS = 30.0, 20.0, 10.0

#: A front that works, then calls a deployment whose batches wait for their time-out, and passes
#: the answer on to another. FastAPI makes spans of its own.
APP = f"""
import asyncio
from fastapi import FastAPI
from ray import serve

api = FastAPI()

@api.middleware("http")
async def counted(request, call_next):
    return await call_next(request)

@serve.deployment(max_ongoing_requests=100)
class Down:
    @serve.batch(max_batch_size=64, batch_wait_timeout_s={BATCH_WAIT_MS / 1e3})
    async def batched(self, items):
        await asyncio.sleep({DOWN_MS / 1e3})
        return items

    async def __call__(self, item):
        return await self.batched(item)

@serve.deployment(max_ongoing_requests=100)
class Last:
    async def __call__(self, item):
        return item

@serve.deployment(max_ongoing_requests=100)
@serve.ingress(api)
class Front:
    def __init__(self, down, last):
        self.down, self.last = down, last

    @api.get("/")
    async def answer(self):
        await asyncio.sleep({FRONT_MS / 1e3})
        return await self.last.remote(self.down.remote(1))

app = Front.bind(Down.bind(), Last.bind())
"""


@pytest.mark.ci
def test_the_hops_of_an_app_with_calls_and_a_batch(tmp_path: Path) -> None:
    (tmp_path / "way.py").write_text(APP)
    line = "run way.py:app --trace 10% --clients raw:1 --windows 4 --window-seconds 1"
    result = measure(f"{line} --variant default,optimized", tmp_path)
    assert len(result.trials) == 2
    for trial in result.trials:
        fall = trial.waterfall
        assert fall.traced >= 10 and not fall.unseen and not fall.failed and not fall.cut
        assert not fall.lost_marks
        for request in fall.requests:
            assert sum(ns for _, _, ns in request.spans) == request.total_ns
            assert [call.deployment for call in request.calls] == ["Down", "Last"]
            assert all(call.total_ns < request.total_ns for call in request.calls)
        mean_ms = {name: times.mean / 1e6 for name, times in fall.hops.items()}
        assert mean_ms["user code"] >= FRONT_MS
        assert mean_ms["Down: batch wait"] >= BATCH_WAIT_MS
        assert mean_ms["Down: user code"] >= DOWN_MS
        assert mean_ms["downstream"] >= mean_ms["Last: argument"] >= BATCH_WAIT_MS + DOWN_MS
        first = "client to HAProxy" if trial.variant == "optimized" else "client to proxy"
        assert first in mean_ms and "between" not in mean_ms
        assert ("HAProxy to client" in mean_ms) == ("Tr" in fall.haproxy_ms)
        assert ("HAProxy to client" in mean_ms) == (trial.variant == "optimized")
        assert ("proxy" in mean_ms) == ("router" in mean_ms) == (trial.variant == "default")
        assert "Down: router" in mean_ms


@pytest.mark.long
def test_versus_says_in_which_hop_the_sides_differ(tmp_path: Path) -> None:
    (tmp_path / "way.py").write_text(APP)
    slow = APP.replace(f"sleep({FRONT_MS / 1e3})", f"sleep({(FRONT_MS + 40) / 1e3})")
    (tmp_path / "slow.py").write_text(slow)
    line = "versus --a way.py:app --b slow.py:app --quick --all-rounds --clients raw:1 --trace 20%"
    done = run_checked(f"{line} --out out", tmp_path)
    text = " ".join(done.stdout.split())
    assert re.search(r"B takes [\d.]+ ms more than A, [\d.]+ of them user code", text), text
