"""The program of NodeCrew: a driver of a Ray cluster that places a load actor on each node.

Protocol: that of the program of a cluster, by whose modules it joins and answers. End of stdin
means stop: Ray ends the actors of a driver that is gone. The package serve_bench travels with it
(`py_modules`), so that it need not be installed on the other hosts: there it needs Ray alone and
what comes with `ray[serve]`.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import serve_bench
from serve_bench.core.facts import LastHeard
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.nodes import NodePart, NodeState, sum_progress
from serve_bench.core.schema import built, plain
from serve_bench.nodes.actors import LoadActor

HOME: Final = Path(serve_bench.__file__).parent

# The program of a cluster knows its modules by their plain names, and Ray gives the path on.
sys.path.insert(0, str(HOME / "serving" / "cluster"))
from actors import nodes  # noqa: E402
from protocol import Actions, Answers, read_commands  # noqa: E402
from start import join  # noqa: E402

del sys.path[0]

# One load on all nodes.
#
# Rule: nodes begin together by message, and the round trip of that message bounds how far apart
# they began: no clock of a node is compared with another's.

ACTORS_S: Final = 60.0
"""How long load actors may take to come up: the package travels to each node first."""

SILENT_S: Final = 10.0
"""A node that does not answer for this time is lost."""

GATE_S: Final = 30.0
"""How long beyond its warm-up and its connecting a node may take to be ready."""

CALL_OFF_S: Final = 8.0
"""How long nodes may take to give what they have once a load is called off."""

TICK_S: Final = 0.25

THREADS: Final = 6
"""Threads of an actor: one drives, the others answer."""

now = time.monotonic


class CalledOff(Exception):
    """The parent wants no more of the load than what was measured."""


def start_actor(node: str) -> Any:
    """Start a load actor on this node; it may come up later, or never."""
    remote: Any = ray.remote(LoadActor)
    place = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
    options = {"num_cpus": 0, "max_restarts": 0, "max_concurrency": THREADS}
    return remote.options(**options, scheduling_strategy=place).remote()


@dataclass
class NodeTask:
    """The task of a node's actor: how it stands, and its outcome."""

    node: str
    actor: Any  # None once lost
    kept: bool  # it drove an earlier load
    heard: float | None = None  # when it last answered; None before it is up
    state: NodeState = field(default_factory=NodeState)
    question: Any = None
    future: Any = None
    part: NodePart | None = None

    @property
    def pending(self) -> list[Any]:
        """The calls that Ray is to answer."""
        if self.question is None:
            self.question = self.actor.state.remote()
        return [self.question] if self.future is None else [self.question, self.future]

    def take(self, answered: set[Any]) -> None:
        """Take what was answered; start an actor again that ended since its last load."""
        try:
            if self.future in answered:
                answer = ray.get(self.future, timeout=SILENT_S)
                self.part = built(NodePart, answer, "part")
            elif self.question in answered:
                question, self.question = self.question, None
                self.state, self.heard = ray.get(question, timeout=SILENT_S), now()
        except ray.exceptions.RayTaskError as error:
            traceback.print_exc()
            self.part = NodePart(reason=why(error), broken=True)
        except ray.exceptions.RayError as error:
            if self.kept and self.heard is None:  # it died since its last load
                ray.kill(self.actor)
                self.actor, self.kept = start_actor(self.node), False
            elif self.future in answered or not isinstance(
                error, ray.exceptions.ActorUnavailableError
            ):
                self.lose(why(error))
            # Otherwise it may come back; silence decides.

    def lose(self, reason: str) -> None:
        """Give the node up, with what it last reported."""
        ray.kill(self.actor)
        self.actor = None
        heard = LastHeard(0, 0, round(now() - self.heard, 3) if self.heard else 0.0)
        progress = self.state.progress
        if progress is not None and progress.phase in ("measure", "drain"):
            heard = LastHeard(progress.completed, progress.failed, heard.age_s)
        self.part = NodePart(reason=reason, last_heard=heard)


class LoadActors:
    """The load actors, and the load in progress."""

    def __init__(self, say: Callable[..., None], called_off: Callable[[], bool]) -> None:
        self._say, self._called_off = say, called_off  # how it stands; whether it shall end
        self._actors: dict[str, Any] = {}
        self._tasks = list[NodeTask]()
        self.answers: dict[int, dict[str, Any]] = {}  # to the last load, should Ctrl-C lose it
        # No two nodes began to measure further apart than this; None: unknown (called off before
        # that, or a single node).
        self._skew_s: float | None = None

    def drive(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Drive a load from these nodes at once; return the part of each, and `skew_s`."""
        loads, timing = built(dict[str, Load], spec["loads"], "loads"), Timing(**spec["timing"])
        self._skew_s, self._tasks = None, []
        for node in loads:
            actor = self._actors.pop(node, None)
            self._tasks.append(NodeTask(node, actor or start_actor(node), actor is not None))
        try:
            late = f"its load actor did not come up in {ACTORS_S:.0f} s"
            self._wait_for(lambda task: task.heard is not None, ACTORS_S, late)
            for task in self._working:
                about = loads[task.node], timing, spec["mark"], spec["sample"]
                task.future = task.actor.drive.remote(*about)
            connect_s = max(load.connect_timeout_s for load in loads.values())
            ready_s = timing.warmup_max_s + connect_s + GATE_S
            late = "it did not get ready to measure in time"
            self._wait_for(lambda task: task.state.at_gate, ready_s, late)
            sent, calls = now(), [task.actor.begin.remote() for task in self._working]
            if calls:  # all are ready, and begin within the round trip of this
                _, silent = ray.wait(calls, num_returns=len(calls), timeout=SILENT_S)
                round_trip_s = SILENT_S if silent else now() - sent
                self._skew_s = round_trip_s if len(calls) > 1 else None
            self._wait_for(lambda task: False, math.inf)
        except CalledOff:
            self._end_early()
        finally:
            for task in self._working:  # what was raised here must not leave them loading
                task.lose("its load was given up")
            self._actors |= {task.node: task.actor for task in self._tasks if task.actor}
        parts = {task.node: task.part for task in self._tasks if task.part is not None}
        # How differently long nodes took from the message to the first window.
        after = [part.opened_after_s for part in parts.values() if part.opened_after_s is not None]
        if self._skew_s is not None and after:
            self._skew_s = round(self._skew_s + max(after) - min(after), 6)
        self.answers = {spec["load"]: {"parts": plain(parts), "skew_s": self._skew_s}}
        return self.answers[spec["load"]]

    @property
    def _working(self) -> list[NodeTask]:
        return [task for task in self._tasks if task.part is None]

    def _wait_for(
        self, reached: Callable[[NodeTask], bool], timeout_s: float, late: str = ""
    ) -> None:
        """Listen until no working node is behind, and lose the late ones. Raises CalledOff."""
        deadline = now() + timeout_s
        while any(not reached(task) for task in self._working):
            self._listen()
            if self._called_off():
                raise CalledOff
            for task in self._working if now() > deadline else ():
                if not reached(task):
                    task.lose(late)

    def _listen(self) -> None:
        """Take the answers of a tick, lose nodes that died or are silent, report progress."""
        pending = [answer for task in self._working for answer in task.pending]
        answered, _ = ray.wait(pending, num_returns=len(pending), timeout=TICK_S)
        for task in self._working:
            task.take(set(answered))
        for task in self._working:
            if task.heard is not None and now() - task.heard > SILENT_S:
                task.lose(f"it has not answered for {SILENT_S:.0f} s")
        progress = sum_progress(task.state.progress for task in self._working)
        self._say(event="phase", name=json.dumps(progress and asdict(progress)))

    def _end_early(self) -> None:
        """Call the load off, and keep what was measured by then."""
        for task in self._working:
            if task.future is None:
                task.lose("called off before it measured")
            else:
                task.actor.call_off.remote()
        deadline = now() + CALL_OFF_S
        while self._working and now() < deadline:
            self._listen()
        for task in self._working:
            task.lose("it did not answer when the load was called off")


def why(error: BaseException) -> str:
    """Return Ray's reason in one line, without ids and the traceback around it."""
    if isinstance(error, ray.exceptions.ActorUnavailableError):
        match = re.search(r"RPC error: (.+?)(?: rpc_code|$)", str(error), re.MULTILINE)
        return f"the connection to its actor broke{f' ({match[1]})' if match else ''}"
    lines = [line for line in str(error).splitlines() if line.strip() and line[0] not in "\t "]
    text = lines[-1].strip() if lines else type(error).__name__
    for mark in (" Node Id:", " The worker ", " Worker exit", ": Worker", " Reference"):
        text = text.partition(mark)[0]
    return text.rstrip(". :")


def list_nodes(spec: dict[str, Any]) -> dict[str, Any]:
    """List the nodes that are alive; the first call joins their cluster. Raises Refused."""
    if not ray.is_initialized():
        join(spec["address"], "serve_bench", str(HOME))  # the actors have no names there
    return {"nodes": nodes()}


def main() -> None:
    """Serve commands until stdin ends."""
    answers, commands = Answers(), read_commands(lambda: None)
    # While a load runs, the parent says nothing but `call_off`.
    loads = LoadActors(answers.say, called_off=lambda: not commands.empty())
    actions: Actions = {
        "join": list_nodes,
        "drive": loads.drive,
        "call_off": lambda spec: loads.answers.get(spec["load"], {"parts": {}}),
    }
    answers.serve(iter(commands.get, None), actions)


if __name__ == "__main__":
    main()
