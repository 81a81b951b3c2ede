"""Limits that can be planted, and how each is deployed and driven: one trial with a known cause.

Rule: a case says what is planted and which verdicts are right; a trial is made exactly as the
runner makes one, so that it is sampled and counted alike. The app is planted.py. Two sets of
parameters: thresholds are fixed on `tune` alone, and judged on `judge`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from serve_bench.clock import now_iso
from serve_bench.inside import Inside
from serve_bench.load import drive_load
from serve_bench.load_spec import Client, Load, Timing
from serve_bench.request_spec import Request
from serve_bench.result import PlannedTrial, Trial, trial_key
from serve_bench.server import Serving
from serve_bench.strays import marks
from serve_bench.trial import row_of, trial_of
from serve_bench.url_runner import drive_url
from serve_bench.verdict import Cause, Verdict, limited_by

APP: Final = Path(__file__).with_name("planted.py")
ROUTE: Final = "/planted"
TIMING: Final = Timing(warmup_min_s=0.5, warmup_max_s=1.0, windows=4, window_s=0.5)

HOG: Final = "while True: pass"


@dataclass(frozen=True)
class Case:
    """A planted limit. `causes`: what may be said of it, what was planted first.

    A request costs `ms` milliseconds in the way of `how` (planted.py). `lighter`: also driven with
    so many connections before, and judged beside that. `hogs`: busy processes for each core.
    `on`: the variants for which it is planted; empty: no Serve, a fast server instead.
    """

    name: str
    causes: tuple[Cause, ...]
    how: str
    ms: float
    connections: int
    lighter: int | None = None
    rate: float | None = None
    replicas: int = 1
    slots: int = 1000
    batch_size: int = 1
    batch_wait_s: float = 0.0
    front: bool = False
    hogs: int = 0
    client: Client = "raw"
    on: tuple[str, ...] = ("default", "optimized")

    @property
    def cell(self) -> dict[str, Any]:
        """What a run would say of the deployment that is planted."""
        return {
            "max_batch_size": self.batch_size,
            "max_concurrent_queries": self.slots,
            "num_replicas": self.replicas,
            "batch_wait_timeout_s": self.batch_wait_s,
        }


_DOWN: Final[tuple[Cause, ...]] = ("downstream deployment",)
_OWN: Final[tuple[Cause, ...]] = ("host CPU", "replica CPU")
"""On a host with few cores the replicas have no core each; on one with many they do."""

TUNE: Final = (
    Case("replica burns", ("replica CPU",), "burn", 20, 8),
    Case("all burn", _OWN, "burn", 20, 8, replicas=2),
    Case("slots", ("concurrency limit",), "sleep", 50, 10, slots=1),
    Case("batch wait", ("batch wait",), "batch", 0, 8, batch_size=32, batch_wait_s=0.1),
    Case("proxy", ("proxy CPU",), "nothing", 0, 100, on=("default",)),
    Case("no-op behind HAProxy", _OWN, "nothing", 0, 100, on=("optimized",)),
    Case("hogs", ("host CPU",), "sleep", 100, 10, hogs=2),
    Case("one connection", ("offered load",), "sleep", 50, 1),
    Case("low rate", ("offered load",), "nothing", 0, 10, rate=20),
    Case("loop blocked", ("replica loop",), "block", 30, 10),
    Case("loop blocked (ladder)", ("replica loop",), "block", 30, 10, lighter=2),
    Case("one of 3 hot", ("replica loop",), "hot", 100, 12, replicas=3),
    Case("downstream burns", _DOWN, "burn", 20, 8, front=True),
    Case("downstream slots", _DOWN, "sleep", 50, 10, slots=1, front=True),
    Case("client", ("client",), "", 0, 100, on=()),
)

JUDGE: Final = (
    Case("replica burns", ("replica CPU",), "burn", 45, 20),
    Case("all burn", _OWN, "burn", 60, 24, replicas=3),
    Case("slots", ("concurrency limit",), "sleep", 80, 16, slots=2, replicas=2),
    Case("batch wait", ("batch wait",), "batch", 0, 5, batch_size=16, batch_wait_s=0.05),
    Case("proxy", ("proxy CPU",), "nothing", 0, 50, replicas=2, on=("default",)),
    Case("no-op behind HAProxy", _OWN, "nothing", 0, 64, replicas=2, on=("optimized",)),
    Case("hogs", ("host CPU",), "sleep", 60, 6, hogs=3),
    Case("one connection", ("offered load",), "sleep", 15, 2, replicas=2),
    Case("low rate", ("offered load",), "sleep", 10, 24, rate=45, replicas=2),
    Case("loop blocked", ("replica loop",), "block", 70, 24),
    Case("loop blocked (ladder)", ("replica loop",), "block", 70, 24, lighter=6),
    Case("one of 3 hot", ("replica loop",), "hot", 60, 9, replicas=3),
    Case("downstream burns", _DOWN, "burn", 8, 16, front=True),
    Case("downstream slots", _DOWN, "sleep", 120, 30, slots=2, replicas=2, front=True),
    Case("client", ("client",), "", 0, 16, client="aiohttp", on=()),
)

SETS: Final = {"tune": TUNE, "judge": JUDGE}


@dataclass
class Field:
    """Where cases are planted: a launch, and a folder for what the trials leave."""

    serving: Serving
    run_id: str
    variant: str
    folder: Path
    _planted: int = 0

    def make_ready(self) -> None:
        """Puts the app on the path of the launch, before anything is deployed."""
        (self.serving.spec.directory / "p" / APP.name).write_text(APP.read_text())

    def plant(self, case: Case) -> str:
        """Deploys a case; its URL."""
        self._planted += 1
        hot = self.serving.spec.directory / f"hot-{self._planted}"
        self.serving._ask("deploy", spec_of(case, hot), 120)
        self.serving._note_vital()
        return self.serving.url + ROUTE

    def trials(self, case: Case, timing: Timing = TIMING) -> list[Trial]:
        """Deploys and drives a case; the trial that counts is the last."""
        self.plant(case)
        loads = [case.connections] if case.lighter is None else [case.lighter, case.connections]
        with hogging(case.hogs * (os.cpu_count() or 1), self.run_id):
            return [self._drive(replace(case, connections=count), timing) for count in loads]

    def _drive(self, case: Case, timing: Timing) -> Trial:
        request = Request(self.serving.url + ROUTE, expect_status=(200,), expect_body=b"ok")
        load = Load(request, connections=case.connections, rate=case.rate)
        planned = planned_of(case, load, self.variant)
        started_at = now_iso()
        with Inside(self.folder).around(self.serving, planned) as look:
            result = drive_load(load, timing, mark=marks(self.run_id))
        return look.add_to(trial_of(planned, "1", started_at, result, result.duration_s), result)


def client_trial(case: Case, url: str, run_id: str, folder: Path) -> Trial:
    """The load of a case against a server that is no Serve, as `serve-bench load` drives it."""
    request = Request(url, expect_status=(200,))
    load = Load(request, client=case.client, connections=case.connections, processes=1)
    planned = planned_of(case, load, "url")
    driven = drive_url(load, TIMING, planned, run_id, lambda progress: None, folder)
    return driven.trial


def verdict_on(trials: list[Trial]) -> Verdict:
    """What a report says of the last of these trials; the others are of the same run."""
    return limited_by(trials[-1], beside=trials)


def planned_of(case: Case, load: Load, variant: str) -> PlannedTrial:
    """The trial as a plan would name it."""
    row, cell = row_of(load), case.cell if case.on else {"url": load.request.url}
    return PlannedTrial(trial_key(variant, 1, cell, row.label), 1, variant, cell, row)


def spec_of(case: Case, hot_file: Path) -> dict[str, Any]:
    """What the cluster child is told, in the form of app_spec.deploy_spec."""
    settings = {"how": case.how, "ms": case.ms}
    batch = {"max_batch_size": case.batch_size, "batch_wait_timeout_s": case.batch_wait_s}
    quick = {"graceful_shutdown_wait_loop_s": 0.1, "graceful_shutdown_timeout_s": 1.0}
    planted = {
        "name": "Planted",
        "num_replicas": case.replicas,
        "max_ongoing_requests": case.slots,
        "user_config": {**settings, **batch, "hot_file": str(hot_file)},
        **quick,
    }
    expect = {
        **settings,
        "max_ongoing_requests": case.slots,
        "queue_max_batch_size": case.batch_size,
        "batch_wait_timeout_s": case.batch_wait_s,
    }
    return {
        "name": "planted",
        "import_path": "planted:build",
        "route_prefix": ROUTE,
        "ready": {"path": ROUTE, "method": "GET", "headers": {}, "body": None, "statuses": [200]},
        "args": {"front": "1" if case.front else "0"},
        "deployments": [planted, *([{"name": "Front", **quick}] if case.front else [])],
        "checks": [
            {"deployment": "Planted", "replicas": case.replicas, "expect": expect, "told": {}}
        ],
        "own": False,
        "timeout_s": 90.0,
    }


@contextmanager
def hogging(count: int, run_id: str) -> Iterator[None]:
    """So many processes that use all the CPU they get, until the block ends.

    Each in a session of its own, as strangers on a host are: where the kernel shares the CPU out by
    session (sched_autogroup), all hogs of one session would count as one.
    """
    with ExitStack() as stack:
        for _ in range(count):
            process = subprocess.Popen(
                [sys.executable, "-c", HOG],
                start_new_session=True,
                env={**os.environ, **marks(run_id)},
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield
