"""Stands in for what runs start: clusters, backends, loads, nodes and the clock.

A Script says what fails and when; it notes each call and each record, and keeps each step of
progress.
"""

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

from msgspec import structs

from serve_bench.benchmarks.rpc.backend import RpcBackend, WorldPids
from serve_bench.benchmarks.scale.cluster import AttachedCluster, OwnCluster
from serve_bench.core.facts import LastHeard, TrialUsage
from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import Counts, LoadResult, Progress, Slice, WorkerFailure
from serve_bench.core.load_spec import Load, Slices, Timing
from serve_bench.core.nodes import Node, NodePart
from serve_bench.core.record_lines import to_line
from serve_bench.core.result import Failure, Record, Trial
from serve_bench.core.schema import built, plain
from serve_bench.load.driver import slices_facts
from serve_bench.load.failures import LoadError, LoadInterrupted
from serve_bench.nodes.crew import NodeCrew
from serve_bench.observing import inside, sampler
from serve_bench.runner.load_source import LocalLoads
from serve_bench.serving.bare import BareServer
from serve_bench.serving.server import Deployed, LaunchFailed, Serving
from serve_bench.serving.strays import Reaped
from serve_bench.store import RunFolder, StoreError
from tests import rounds
from tests.cases import Patch

COSTS_S = {"start": 4.0, "deploy": 2.0, "prove": 0.5, "close": 1.0, "load": 3.0, "world": 2.0}

Change = Callable[[Any], Any]
"""What becomes of the result of a call."""


@dataclass
class Script:
    """What a world does.

    `faults`: by call and its number, such as "deploy 2": an exception that it raises, or what
    becomes of its result. `dead`, `broken` and `gone` are set by faults.
    """

    faults: Mapping[str, BaseException | Change] = field(default_factory=dict)
    now_s: float = 100.0
    events: list[str] = field(default_factory=list)
    dead: bool = False
    broken: str | None = None
    gone: list[str] = field(default_factory=list)
    leftovers: tuple[str, ...] = ()
    costs_s: Mapping[str, float] = field(default_factory=lambda: COSTS_S)
    folder: Path = Path()
    opened: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    steps: list[Any] = field(default_factory=list)
    records: list[Trial | Failure] = field(default_factory=list)
    _counts: Counter[str] = field(default_factory=Counter)

    def note(self, text: str) -> None:
        self.events.append(text.replace(str(self.folder), "FOLDER"))

    def call(self, name: str, who: object = "", result: Any = None) -> Any:
        """Note a call, and take as long as it takes, with what is to come of it."""
        self._counts[name] += 1
        launch = str(who).split(" ")[0]
        if name in ("begin", "bare", "start") and launch.isdigit() and launch not in self.opened:
            self.opened.append(launch)
        if name == "close":
            self.closed.append(str(who))
        if threading.current_thread() is threading.main_thread():
            self.note(f"call {name} {who}".strip())
            self.now_s += self.costs_s.get(name, 0.0)
        fault = self.faults.get(f"{name} {self._counts[name]}")
        if isinstance(fault, BaseException):
            raise fault
        return result if fault is None else fault(result)

    @property
    def unused(self) -> list[str]:
        faults = (name.split() for name in self.faults)
        return [name for name, number in faults if self._counts[name] < int(number)]

    def kill(self, result: Any) -> Any:
        self.dead = True
        return result

    def lose(self, *gone: str, broken: str | None = None) -> Change:
        """End these processes, as a fault: the cluster is `broken`."""

        def change(result: Any) -> Any:
            self.gone, self.broken = list(gone), broken
            return result

        return change

    def drive(
        self,
        load: Load,
        timing: Timing,
        *,
        on_progress: Callable[[Progress], None] | None = None,
        **_: object,
    ) -> LoadResult:
        if on_progress is not None:
            on_progress(Progress("warmup", 0.0, 3.0, 90.0, 9, 0))
        made = rounds.round_of(load, 2.0, done=load.total or 100)
        result: LoadResult = self.call("load", f"{load.connections} of {load.request.url}", made)
        if on_progress is not None:
            on_progress(Progress("measure", 3.0, 0.0, 50.0, 100, 0))
        return result

    def slices(
        self, loads: tuple[Load, ...], plan: Slices, *, on_progress: Any, mark: object
    ) -> Any:
        sides = []
        for side, load in enumerate(loads):
            made = self.drive(load, Timing(), on_progress=on_progress)
            begins = (0.1 * pair + 0.05 * side for pair in range(plan.pairs))
            parts = [Slice(side, begun_s, 0.05, 10, 0) for begun_s in begins]
            facts = slices_facts("slices", load, plan, parts, made.total.completed)
            sides.append(structs.replace(made, windows=(10,) * plan.pairs, slices=facts))
        return self.call("slices", plan.pairs, tuple(sides))

    def step(self, step: Any) -> None:
        self.steps.append(step)

    def trial(self, trial: Trial, number: int, of: int) -> None:
        self.records.append(trial)

    def failure(self, failure: Failure) -> None:
        self.records.append(failure)


def record_text(record: Record) -> str:
    """Write a record as one line: what tells it from others."""
    fields = json.loads(to_line(record))
    names = ["key", "launch", "what", "message", "flags"]
    if "key" not in fields:
        names[1:1] = ["id", "variant", "round"]
    if isinstance(fields.get("variant"), dict):
        fields["variant"] = fields["variant"]["name"]
    words = [f"{name}={fields[name]}" for name in names if fields.get(name)]
    return " ".join(["record", record.KIND, *words])


class Sampling:
    """In the place of a Sampler."""

    tracks = ()

    def __init__(self, *_: object, **__: object) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def summary(self, began_ns: int, seconds: float) -> TrialUsage:
        return TrialUsage(interval_s=seconds)

    def samples(self, key: str) -> list[Any]:
        return []


@dataclass
class Looking:
    """In the place of an Inside."""

    script: Script
    sample: bool = True
    metrics: bool = False

    def deployed(self, serving: object) -> None:
        self.script.note("inside deployed")

    def loaded_between(self) -> None:
        self.script.note("inside loaded between")

    @contextmanager
    def around(self, serving: object, planned: object, *, profiled: bool = False) -> Iterator[Any]:
        def add_to(trial: Trial, result: LoadResult) -> Trial:
            return trial.flagged("profiled") if profiled else trial

        yield SimpleNamespace(add_to=add_to, keep_samples=lambda: self.script.call("samples", 0))
        self.script.call("looked")


class Crew(NodeCrew):
    """In the place of the program of the nodes: two nodes."""

    script: Script

    def __init__(self, *_: object) -> None:
        self.nodes = tuple(Node(name, f"10.0.0.{name}", name) for name in "12")
        self._marks: dict[str, str] = {}
        self._asked = 0

    def start(self) -> None:
        self.script.call("crew")

    def look(self) -> tuple[Node, ...]:
        return self.nodes

    def close(self) -> None:
        self.script.note("call crew close")

    def _ask(self, command: str, body: Any, timeout_s: float, *_: object) -> dict[str, Any]:
        if command == "drive":
            loads = built(dict[str, Load], body["loads"], "loads").items()
            driven = {name: self.script.drive(load, Timing()) for name, load in loads}
            self.parts: Any = {name: NodePart(result) for name, result in driven.items()}
            self.parts = self.script.call("nodes", len(loads), self.parts)
        return {"parts": plain(self.parts), "skew_s": 0.1}


PROXIES: list[dict[str, Any]] = [
    {
        "node_id": name,
        "node_ip": f"127.0.0.{name}",
        "hostname": name,
        "status": "HEALTHY",
        "host": "0.0.0.0",
        "port": 8000 + int(name),
        "pid": 7,
        "why": None,
        "shared_with": [],
        "place": None,  # and more that only the program needs
    }
    for name in "12"
]


def _answer(script: Script, command: str) -> Any:
    replica = {"node_id": "1", "app": "a", "deployment": "Echo"}
    answers: dict[str, dict[str, Any]] = {
        "put": {"seconds": 2.0, "replicas": [{"pid": pid, **replica} for pid in (11, 12)]},
        "remove": {"seconds": 0.5},
        "proxies": {"proxies": PROXIES},
        "controller": {"controller": {"control_loop_ms": 3.0}},
        "proof": {"flags": {}, "environment": {}, "packages": []},
    }
    return script.call(command, "", answers[command])


def install(script: Script, monkeypatch: Patch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: script.now_s)
    monkeypatch.setattr(time, "time_ns", lambda: int(1e9 * script.now_s))
    _everywhere(
        monkeypatch,
        drive_load=script.drive,
        drive_slices=script.slices,
        now_iso=lambda: f"at {script.now_s:g}",
        Sampler=Sampling,
        Gpus=lambda: None,
        NodeCrew=type("OwnCrew", (Crew,), {"script": script}),
        pss_bytes=lambda pid: 90_000_000,
        QUIET_S=0.0,
        keep_samples=lambda folder, samples: script.call("samples", len(samples)),
        worth_a_look=lambda trial, front: trial.row.connections == 8,
    )
    append = RunFolder.append

    def note_and_append(self: RunFolder, record: Record) -> None:
        script.call(f"append-{record.KIND}")
        script.events.pop()
        script.note(record_text(record))
        append(self, record)

    monkeypatch.setattr(RunFolder, "append", note_and_append)
    monkeypatch.setattr(LocalLoads, "drive", lambda self, cluster=None: script.drive)
    monkeypatch.setattr(LocalLoads, "close", lambda self: script.note("call place close"))
    _clusters(script, monkeypatch)
    _backends(script, monkeypatch)

    def start(self: BareServer) -> None:
        script.call("bare", f"{self.name} {self.kind}")
        self.seconds["start"], self.proof["port"] = 0.5, 1000 * int(self.name)

    _fake(script, monkeypatch, BareServer, 1, start=start)


def _everywhere(monkeypatch: Patch, **others: Any) -> None:
    keep = (inside.__name__, sampler.__name__, "serve_bench.store")
    for name, module in list(sys.modules.items()):
        if name.startswith("serve_bench.") and not name.startswith(keep):
            for word, value in others.items():
                if word in vars(module):
                    monkeypatch.setattr(module, word, value)


def _replace_methods(monkeypatch: Patch, owner: type, **fakes: Any) -> None:
    for name, fake in fakes.items():
        monkeypatch.setattr(owner, name, fake)


def _fake(script: Script, monkeypatch: Patch, owner: type, ended: int, **fakes: Any) -> None:
    """Name a process that is alive until a fault, and takes so many others with it."""

    def close(self: Any) -> Reaped:
        script.call("close", self.name)
        return Reaped(ended, 1.0, script.leftovers)

    alive = lambda self: not script.dead  # noqa: E731
    common = {"close": close, "alive": alive, "processes": lambda self: []}
    _replace_methods(monkeypatch, owner, **{**common, **fakes})


def _clusters(script: Script, monkeypatch: Patch) -> None:
    ended = {"1": threading.Event()}

    def begin(self: Serving, apart_from: Sequence[range] = ()) -> None:
        if not apart_from:  # a new launch
            script.dead, script.broken = False, None
        self.port, ended[self.spec.name] = 1000 * int(self.spec.name), threading.Event()
        self.ports = range(self.port, self.port + 50)
        self.gcs_address = "127.0.0.1:6379"
        taken = ", ".join(str(ports.start) for ports in apart_from)
        apart = f" apart from {taken}" if taken else ""
        script.call("begin", f"{self.spec.name}{apart}")

    def await_up(self: Serving, report: Callable[[str], None] = lambda phase: None) -> None:
        # Of two at once the second waits for the first, so that the order is always the same.
        name = self.spec.name
        before = ended.get(str(int(name) - 1))
        if threading.current_thread() is not threading.main_thread() and before is not None:
            before.wait(5.0)
            if any(text.startswith(("start ", "import ")) for text in script.faults):
                time.sleep(0.3)  # until the fault of the first has ended this one
        try:
            script.call("import", name)
            for phase in ("import", "ray_init", "serve_start"):
                self.seconds[phase] = 1.0
                report(phase)
            script.call("start", name)
        finally:
            ended[name].set()

    def deploy(self: Serving, app: Any, cell: Any, *_: Any) -> Any:
        replica = {"deployment": "Echo", "max_ongoing_requests": 5}
        what = f"{self.spec.name} num_replicas={cell['num_replicas']}"
        return script.call("deploy", what, Deployed(2.0, False, {"replicas": [replica]}))

    def close(self: Serving) -> Reaped:
        if self._closed is None:
            script.call("close", self.spec.name)
            self._closed = Reaped(3, 1.0, script.leftovers)
        return self._closed

    def casualties(self: Serving) -> list[str]:
        gone, script.gone = script.gone, []
        return gone

    def ask(self: Any, command: str, body: Any, timeout_s: float, report: Any = print) -> Any:
        if command == "put":
            report("1 of 2 replicas")
        return _answer(script, command)

    replica = {"pid": 7, "app": "a", "deployment": "Echo", "looks": 3, "ongoing": 1.0, "served": 9}
    looks = [{**replica, "requests": 1.23456}]
    _fake(
        *(script, monkeypatch, Serving, 3),
        begin=begin,
        await_up=await_up,
        deploy=deploy,
        prove=lambda self: script.call("prove", self.spec.name, {"port": self.port}),
        close=close,
        casualties=casualties,
        broken=lambda self: script.broken,
        begin_look=lambda self: script.call("look"),
        end_look=lambda self, from_ns, to_ns: looks,
    )

    def attach(self: AttachedCluster, report: Callable[[str], None] = print) -> None:
        script.call("start", f"attached {','.join(self.names)}")
        self.seconds["attach"] = 1.0
        report("attach")
        self.facts = {"nodes": [{"memory_bytes": 8e9}], "versions": {"ray": "2"}}

    _replace_methods(monkeypatch, OwnCluster, _ask=ask, _changed=lambda self: None)
    _replace_methods(
        monkeypatch,
        AttachedCluster,
        _ask=ask,
        start=attach,
        alive=lambda self: not script.dead,
        close=lambda self: Reaped(0, 1.0, script.leftovers),
    )


def _backends(script: Script, monkeypatch: Patch) -> None:
    def start(self: RpcBackend) -> None:
        script.dead = False
        script.call("start", f"{self.name} {self.backend}")
        self.start_s, self.versions, self.port = 1.5, {"torch": "2"}, 29500

    def world(self: RpcBackend, world: Any) -> Any:
        return script.call("world", f"{self.name} {world.world_size}", WorldPids(21, (22,), 0.7))

    def episode(self: RpcBackend) -> Any:
        began = int(1e9 * script.now_s)
        script.now_s += 1.0
        latencies = {"agent_ns": [10, 20], "observer_ns": [[30, 40]]}
        times = {"began_ns": began, "ended_ns": began + 10**9}
        return script.call("episode", self.name, latencies | times)

    _fake(
        *(script, monkeypatch, RpcBackend, 2),
        start=start,
        world=world,
        episode=episode,
        end_world=lambda self: script.call("end", self.name),
        memory_bytes=lambda self: 5,
        open_to_network=lambda self: [],
    )


REFUSED = LoadError("connect", "127.0.0.1", 1000, "refused")
GONE = "replica 7 ended"


def raise_after(change: Change, error: BaseException) -> Change:

    def fail(result: Any) -> Any:
        change(result)
        raise error

    return fail


def launch_failed() -> LaunchFailed:
    return LaunchFailed("it did not come up", ("a line",), Path("logs/launch.log"))


def interrupt(result: Any) -> Any:
    """Ctrl-C within a load: what was measured till then is kept."""
    raise LoadInterrupted(result) if isinstance(result, LoadResult) else KeyboardInterrupt


def silence(result: LoadResult) -> LoadResult:
    nothing = Counts(100, 0, {"reset": 100}, 0)
    counts = dict.fromkeys(("measured", "in_windows", "total"), nothing)
    times = {"latency": Histogram(), "service_time": Histogram()}
    return structs.replace(result, windows=(0,) * len(result.windows), **counts, **times)


def cut(result: LoadResult) -> LoadResult:
    counts, latency = Counts(100, 60, {}, 40), Histogram.of([1_000_000] * 60)
    made = structs.replace(result, windows=(60,), latency=latency, service_time=latency)
    return structs.replace(made, measured=counts, in_windows=counts)


#: What can go wrong with a call, by name.
TROUBLES: Mapping[str, Callable[[Script], BaseException | Change]] = {
    "fails": lambda _: launch_failed(),
    "refused": lambda _: REFUSED,
    "dies": lambda script: raise_after(script.kill, launch_failed()),
    "killed": lambda script: script.kill,
    "lost-part": lambda script: script.lose(GONE),
    "refused-and-lost-part": lambda script: raise_after(script.lose(GONE), REFUSED),
    "broken": lambda script: script.lose("gcs 3 ended", broken="gcs 3 ended"),
    "lost-worker": lambda _: (
        lambda result: structs.replace(result, failures=(WorkerFailure(33, "killed", 5),))
    ),
    "lost-node": lambda _: (
        lambda parts: {**parts, "2": NodePart(reason="died", last_heard=LastHeard(10, 1, 0.0))}
    ),
    "silent": lambda _: silence,
    "silent-side": lambda _: lambda results: (results[0], silence(results[1])),
    "cut": lambda _: cut,
    "full": lambda _: StoreError("FOLDER: cannot write: no space left"),
    "ctrl-c": lambda _: KeyboardInterrupt(),
    "interrupted": lambda _: interrupt,
    "interrupted-and-killed": lambda script: lambda result: interrupt(script.kill(result)),
}
