"""Limits that can be planted, and how each is deployed and driven: one trial with a known cause.

Rule: a case says what is planted and which verdicts are right; a trial is made exactly as the
runner makes one, so that it is sampled and counted alike. The app is planted.py. Two sets of
parameters: thresholds are fixed on `tune` alone, and judged on `judge`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from serve_bench.analysis.verdict import Verdict, limited_by, worth_a_look
from serve_bench.analysis.verdict.candidates import Cause
from serve_bench.core.load_spec import Client, Load, Timing
from serve_bench.core.own_app import limits_of
from serve_bench.core.plan import plan_trial, row_of
from serve_bench.core.request_spec import Request
from serve_bench.core.result import PlannedTrial, Trial
from serve_bench.load.driver import drive_load
from serve_bench.observing.inside import Inside
from serve_bench.runner.extra_loads import look as look_at_waits
from serve_bench.runner.measure import measure_load
from serve_bench.runner.service import Service
from serve_bench.serving.server import Serving
from serve_bench.serving.strays import marks

APP: Final = Path(__file__).with_name("planted.py")
WAITING: Final = Path(__file__).with_name("planted_waits.py")
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
            "max_ongoing_requests": self.slots,
            "num_replicas": self.replicas,
            "batch_wait_timeout_s": self.batch_wait_s,
        }


_DOWN: Final[tuple[Cause, ...]] = ("downstream deployment",)
_OWN: Final[tuple[Cause, ...]] = ("host CPU", "replica CPU")
"""On a host with few cores the replicas have no core each; on one with many they do."""

TUNE: Final = (
    Case("replica burns", ("replica CPU",), "burn", 20, 8),
    Case("all burn", _OWN, "burn", 20, 8, replicas=2),
    Case("slots", ("concurrency limit", "router back-off"), "sleep", 50, 10, slots=1),
    Case("batch wait", ("batch wait",), "batch", 0, 8, batch_size=32, batch_wait_s=0.1),
    Case("proxy", ("proxy CPU",), "nothing", 0, 100, on=("default",)),
    Case("no-op behind HAProxy", _OWN, "nothing", 0, 100, on=("optimized",)),
    Case("hogs", ("host CPU",), "burn", 20, 10, hogs=2),
    Case("one connection", ("offered load",), "sleep", 50, 1),
    Case("low rate", ("offered load",), "nothing", 0, 10, rate=20),
    Case("loop blocked", ("replica loop",), "block", 30, 10),
    Case("loop blocked (ladder)", ("replica loop",), "block", 30, 10, lighter=2),
    Case("one of 3 hot", ("replica loop",), "hot", 100, 6, replicas=3),
    Case("downstream burns", _DOWN, "burn", 40, 8, front=True),
    Case("downstream slots", _DOWN, "sleep", 50, 10, slots=1, front=True),
    Case("client", ("client",), "", 0, 100, on=()),
)

JUDGE: Final = (
    Case("replica burns", ("replica CPU",), "burn", 45, 20),
    Case("all burn", _OWN, "burn", 60, 24, replicas=3),
    Case("slots", ("concurrency limit", "router back-off"), "sleep", 80, 16, slots=2, replicas=2),
    Case("batch wait", ("batch wait",), "batch", 0, 5, batch_size=16, batch_wait_s=0.05),
    Case("proxy", ("proxy CPU",), "nothing", 0, 50, replicas=2, on=("default",)),
    Case("no-op behind HAProxy", _OWN, "nothing", 0, 64, replicas=2, on=("optimized",)),
    Case("hogs", ("host CPU",), "burn", 12, 6, hogs=3),
    Case("one connection", ("offered load",), "sleep", 15, 2, replicas=2),
    Case("low rate", ("offered load",), "sleep", 10, 24, rate=45, replicas=2),
    Case("loop blocked", ("replica loop",), "block", 70, 24),
    Case("loop blocked (ladder)", ("replica loop",), "block", 70, 24, lighter=6),
    Case("one of 3 hot", ("replica loop",), "hot", 60, 9, replicas=3),
    Case("downstream burns", _DOWN, "burn", 8, 16, front=True),
    Case("downstream slots", _DOWN, "sleep", 120, 30, slots=2, replicas=2, front=True),
    Case("client", ("client",), "", 0, 16, client="aiohttp", on=()),
)


@dataclass(frozen=True)
class Wait(Case):
    """A kind of planted_waits.py, deployed and judged as a user's own app.

    The cell says nothing, `front` of options are those of Front, and the slots are what the
    replicas report. `words`: what the verdict's text must hold to be right; with a cause that is
    right and not all of them, or "waits in the app" alone, it is vague. `helper_slots`: of what is
    behind Front.
    """

    words: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    behind: str = ""
    helper_slots: int | None = None
    service_ms: float | None = None  # of the TCP service that is asked

    @property
    def cell(self) -> dict[str, Any]:
        return {}


def _wait(
    name: str,
    kind: str,
    ms: float,
    connections: int,
    causes: tuple[Cause, ...],
    *words: str,
    **more: Any,
) -> Wait:
    return Wait(name, causes, kind, ms, connections, words=words, **more)


_IN: Final[tuple[Cause, ...]] = ("app wait",)
_RESTS: Final[tuple[Cause, ...]] = ("offered load",)  # each request waits, none for another
_HERE: Final = "planted_waits.py:"
_SLOTS: Final[tuple[Cause, ...]] = ("concurrency limit", "router back-off")
"""On `default` the router may leave few slots idle between its tries."""
_TWO: Final = {"max_ongoing_requests": 2}
_AUTO: Final = {
    **{"min_replicas": 1, "max_replicas": 3, "target_ongoing_requests": 2},
    **{"upscale_delay_s": 0.5, "metrics_interval_s": 0.2, "look_back_period_s": 1.0},
}

#: The kinds of the issue that reported wrong verdicts, and those that were right beside them.
WAITS: Final = (
    _wait("burns", "Burn", 20, 8, _OWN, "replica"),
    _wait("two burn", "Burn", 20, 8, _OWN, options={"num_replicas": 2}),
    _wait("proxy", "Sleep", 0, 100, ("proxy CPU", "host CPU"), "proxy", on=("default",)),
    _wait("slots", "Sleep", 50, 10, _SLOTS, options=_TWO),
    _wait("hogs limit", "Burn", 20, 8, ("host CPU",), hogs=4),
    _wait("one connection", "Sleep", 50, 1, _RESTS),
    _wait("low rate", "Sleep", 10, 10, _RESTS, rate=20),
    _wait("blocked loop", "Block", 30, 10, ("replica loop",), _HERE),
    _wait("blocked loop, ladder", "Block", 30, 10, ("replica loop",), _HERE, lighter=2),
    _wait("lock", "Lock", 30, 20, _IN, "Lock.acquire", _HERE),
    _wait("pool of two", "Pool", 30, 20, _IN, "Queue.get", _HERE, service_ms=50),
    _wait("one thread", "Executor", 30, 20, _IN, "thread", _HERE),
    _wait("own batch", "Batch", 0, 10, ("batch wait",), "200 ms", "batch_wait_timeout_s is 0.2 s"),
    _wait("drawn", "Drawn", 100, 20, (*_RESTS, *_IN), "a drawn time", _HERE),
    _wait("rare helper", "Rare", 150, 6, _RESTS, "sleep", _HERE, behind="Sleep", helper_slots=2),
    _wait("helper's slots", "Calls", 50, 20, _DOWN, "Helper", behind="Sleep", helper_slots=2),
    _wait("helper burns", "Calls", 20, 8, (*_DOWN, "host CPU"), "Helper", behind="Burn"),
    _wait("one of two slow", "Differs", 20, 10, ("slow replica",), options={"num_replicas": 2}),
    _wait(
        "queue full", "Sleep", 50, 30, _SLOTS, "queue", options=_TWO | {"max_queued_requests": 5}
    ),
    _wait(
        *("autoscaled", "Sleep", 100, 20, _SLOTS, "replicas"),
        options={**_TWO, "autoscaling_config": _AUTO},
    ),
    _wait("busy host: lock", "Lock", 30, 20, _IN, "Lock.acquire", hogs=1),
    _wait("busy host: slots", "Sleep", 100, 10, _SLOTS, options=_TWO, hogs=1),
    _wait(
        *("busy host: rare", "Rare", 150, 20, (*_IN, *_RESTS), "sleep"),
        behind="Sleep",
        helper_slots=2,
        hogs=1,
    ),
    _wait("busy host: batch", "Batch", 0, 10, ("batch wait",), "200 ms", hogs=1),
)

#: Planted before the rules were written, of which none was changed for them.
FURTHER: Final = (
    _wait("semaphore", "Few", 40, 20, _IN, "acquire", _HERE),
    _wait("queue of one worker", "Worker", 20, 15, _IN, _HERE),
    _wait("blocking socket", "Socket", 0, 10, ("replica loop",), _HERE, service_ms=40),
    _wait("file lock in threads", "FileLock", 30, 12, _IN, _HERE),
    _wait("tick", "Tick", 250, 20, _RESTS, "Event.wait", _HERE),
    _wait("stream of waits", "Stream", 20, 20, _RESTS, "sleep"),
    _wait("thread of its own", "Thread", 25, 16, _IN, _HERE),
    _wait("CPU in one thread", "HashThread", 20, 12, ("replica CPU",)),
    _wait("actor of Ray", "Actor", 30, 16, _IN, _HERE),
    _wait("pool of FastAPI", "InThreads", 200, 100, _IN, "thread"),
    _wait(
        *("lock two hops behind", "Calls", 30, 15, (*_IN, *_DOWN), "Lock.acquire", "Last"),
        behind="Calls",
    ),
)

SETS: Final = {"tune": TUNE, "judge": JUDGE, "waits": WAITS, "further": FURTHER}


@dataclass
class Field:
    """Where cases are planted: a launch, and a folder for what the trials leave."""

    serving: Serving
    run_id: str
    variant: str
    folder: Path
    slots: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    service: int | None = None  # port of the TCP service of the case at hand
    _planted: int = 0

    def make_ready(self) -> None:
        """Put the app on the path of the launch, before anything is deployed."""
        for file in (APP, WAITING):
            (self.serving.spec.directory / "p" / file.name).write_text(file.read_text())

    def plant(self, case: Case) -> str:
        """Deploy a case; return its URL."""
        self._planted += 1
        hot = self.serving.spec.directory / f"hot-{self._planted}"
        if isinstance(case, Wait):
            spec = make_wait_spec(case, hot, self.service or 0)
        else:
            spec = make_spec(case, hot)
        answer = self.serving._ask("deploy", spec, 120)
        self.serving._note_vital()
        self.limits = limits_of(answer["proof"]["replicas"]) if spec["own"] else {}
        self.slots = {name: cap.replicas * cap.each for name, cap in self.limits.items()}
        return self.serving.url + ROUTE

    def trials(self, case: Case, timing: Timing = TIMING) -> list[Trial]:
        """Deploy and drive a case; the trial that counts is the last."""
        loads = [case.connections] if case.lighter is None else [case.lighter, case.connections]
        with ExitStack() as stack:
            self.service = None
            if isinstance(case, Wait) and case.service_ms is not None:
                self.service = stack.enter_context(run_service(case.service_ms, self.run_id))
            self.plant(case)
            stack.enter_context(run_hogs(case.hogs * (os.cpu_count() or 1), self.run_id))
            return [self._drive(replace(case, connections=count), timing) for count in loads]

    def _drive(self, case: Case, timing: Timing) -> Trial:
        is_wait = isinstance(case, Wait)
        body = None if is_wait else b"ok"
        url = self.serving.url + ROUTE + ("/" if is_wait else "")
        request = Request(url, expect_status=(200,), expect_body=body)
        load = Load(request, connections=case.connections, rate=case.rate)
        planned = plan_case(case, load, self.variant)
        drive, inside = partial(drive_load, mark=marks(self.run_id)), Inside(self.folder)
        about = self.serving, planned, load, timing, drive
        trial = measure_load(*about, launch="1", inside=inside).trial
        trial = replace(trial, slots=self.slots, limits=self.limits)
        if worth_a_look(trial, name_front(case)):
            waits = look_at_waits(self.serving, trial, load, drive_load, marks(self.run_id))
            trial = replace(trial, waits=waits)
        return trial


def client_trial(case: Case, url: str, run_id: str, folder: Path) -> Trial:
    """Load a server that is no Serve as a case says, as `serve-bench load` drives it."""
    request = Request(url, expect_status=(200,))
    load = Load(request, client=case.client, connections=case.connections, processes=1)
    planned = plan_case(case, load, "url")
    drive, inside = partial(drive_load, mark=marks(run_id)), Inside(folder)
    return measure_load(Service("url", request), planned, load, TIMING, drive, inside=inside).trial


def verdict_on(trials: list[Trial], case: Case | None = None) -> Verdict:
    """Return what a report says of the last of these trials; the others are of the same run."""
    return limited_by(trials[-1], name_front(case), beside=trials)


def name_front(case: Case | None) -> str | None:
    """Return the ingress, which a report knows of an own app; None of ours."""
    return "Front" if isinstance(case, Wait) else None


def plan_case(case: Case, load: Load, variant: str) -> PlannedTrial:
    """Return the trial as a plan would name it."""
    row, cell = row_of(load), case.cell if case.on else {"url": load.request.url}
    return plan_trial(variant, 1, cell, row)


#: Options of deployments that are taken away soon.
QUICK: Final = {"graceful_shutdown_wait_loop_s": 0.1, "graceful_shutdown_timeout_s": 1.0}


def app_spec(
    build: str, route: str, behind: Mapping[str, int | None], **more: Any
) -> dict[str, Any]:
    """Return what the cluster child is asked for an own app, in the form of AppSpec.

    `build` of a module makes it. Its ingress ends with a slash, and nothing is expected of its
    replicas but their numbers, by their deployments in `behind`.
    """
    checks: list[dict[str, Any]] = [
        {"deployment": name, "replicas": count, "expect": {}, "told": {}}
        for name, count in behind.items()
    ]
    request: dict[str, Any] = {"method": "GET", "headers": {}, "body": None, "statuses": [200]}
    return {
        **{"name": "planted", "import_path": build, "route_prefix": route},
        "ready": {"path": f"{route}/", **request},
        **{"system_log_level": None, "args": {}, "deployments": [], "checks": checks},
        **{"own": True, "timeout_s": 90.0},
        **more,
    }


def make_spec(case: Case, hot_file: Path) -> dict[str, Any]:
    """Return the spec of the app of planted.py, whose replicas say what they use."""
    settings = {"how": case.how, "ms": case.ms}
    batch = {"max_batch_size": case.batch_size, "batch_wait_timeout_s": case.batch_wait_s}
    planted = {
        **{"name": "Planted", "num_replicas": case.replicas, "max_ongoing_requests": case.slots},
        "user_config": {**settings, **batch, "hot_file": str(hot_file)},
        **QUICK,
    }
    spec = app_spec(
        *("planted:build", ROUTE, {"Planted": case.replicas}),
        args={"front": "1" if case.front else "0"},
        deployments=[planted, *([{"name": "Front", **QUICK}] if case.front else [])],
        own=False,
    )
    spec["ready"]["path"] = ROUTE
    spec["checks"][0]["expect"] = {
        **{**settings, "max_ongoing_requests": case.slots},
        "queue_max_batch_size": case.batch_size,
        "batch_wait_timeout_s": case.batch_wait_s,
    }
    return spec


def make_wait_spec(case: Wait, hot_file: Path, port: int) -> dict[str, Any]:
    """Return the spec of an app of planted_waits.py."""
    behind = ("Middle", "Last") if case.behind == "Calls" else ("Helper",) if case.behind else ()
    scaled = "autoscaling_config" in case.options
    count = None if scaled else case.options.get("num_replicas", 1)
    args = {"kind": case.how, "ms": str(case.ms), "port": str(port), "file": str(hot_file)}
    args |= {"behind": case.behind, "slots": str(case.helper_slots or "")}
    args |= {"front": json.dumps({**case.options, **QUICK})}
    replicas = {"Front": count, **dict.fromkeys(behind, 1)}
    return app_spec("planted_waits:build", ROUTE, replicas, args=args)


SERVICE: Final = """
import asyncio, sys
async def one(reader, writer):
    while await reader.readline():
        await asyncio.sleep(float(sys.argv[1]) / 1e3)
        writer.write(b"ok\\n")
async def main():
    server = await asyncio.start_server(one, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


@contextmanager
def run_service(ms: float, run_id: str) -> Iterator[int]:
    """Run a TCP service that answers each line after `ms`; yield its port."""
    with run_script(SERVICE, run_id, str(ms)) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())


@contextmanager
def run_script(script: str, run_id: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a process of Python in its own session until the block ends, as strangers do."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *words],
        stdout=subprocess.PIPE,
        start_new_session=True,  # the kernel may share the CPU out by session (sched_autogroup)
        text=True,
        env={**os.environ, **marks(run_id)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def run_hogs(count: int, run_id: str) -> Iterator[None]:
    """Run `count` processes that use all the CPU they get, until the block ends."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(run_script(HOG, run_id))
        yield
