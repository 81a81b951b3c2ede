"""The program of NodeCrew: a driver of a Ray cluster that holds the actors on its nodes.

Protocol: JSON lines in on stdin (each names a command), JSON lines out on the descriptor
that stdout was; each answer carries the number of its command. End of stdin means stop: Ray ends
the actors of a driver that is gone. The package serve_bench travels with it (`py_modules`), so that
it need not be installed on the other hosts: there it needs Ray alone and what comes with
`ray[serve]`.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from typing import Any, Final, TextIO

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import serve_bench
from serve_bench.nodes.actors import LoadActor

# The load actors of a cluster, and one load on all of them.
#
# Rule: a thread asks the actors how they stand and notices which do not answer, so the program
# always answers its parent. Nodes begin together by message, and the round trip of that message
# bounds how far apart they began: no clock of a node is compared with another's.

SILENT_S: Final = 10.0
"""A node that does not answer for so long is lost."""

GATE_S: Final = 30.0
"""How long beyond its warm-up and its connecting a node may take to be ready."""

CALL_OFF_S: Final = 8.0
"""How long nodes may take to give what they have once a load is called off."""

TICK_S: Final = 0.25

THREADS: Final = 6
"""Of an actor: one drives, the others answer."""

now = time.monotonic


@dataclass
class NodeTask:
    """The task of one node's actor: how it stands, and what came of it."""

    node: str
    actor: Any
    future: Any
    state: dict[str, Any] = field(default_factory=dict)
    heard: float = field(default_factory=now)  # when it last answered
    counted: float = field(default_factory=now)  # when its counts were last heard
    question: Any = None
    outcome: dict[str, Any] | None = None

    def lose(self, reason: str) -> None:
        """It is given up, with what was last heard of it."""
        progress = self.state.get("progress") or {}
        measured = progress.get("phase") in ("measure", "drain")
        self.outcome = {
            "kind": "lost",
            "reason": reason,
            "completed": progress["completed"] if measured else 0,
            "failed": progress["failed"] if measured else 0,
            "age_s": round(now() - self.counted, 3),
        }


class LoadActors:
    """All load actors, and the load that is under way."""

    def __init__(self) -> None:
        self._actors: dict[str, Any] = {}
        self._numbers = 0
        self._tasks: list[NodeTask] = []
        self._off = threading.Event()
        self._thread: threading.Thread | None = None
        self._broken: str | None = None
        self._skew_s: float | None = None
        self._opened = False
        self._gate_deadline = 0.0
        self._end_by: float | None = None

    def start(self, nodes: list[str], timeout_s: float) -> dict[str, Any]:
        """An actor on each of these nodes: what it says, or `{"problem": why there is none}`
        after so many seconds."""
        remote: Any = ray.remote(LoadActor)
        former = set(self._actors)
        for node in nodes:
            if node not in self._actors:
                place = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
                self._actors[node] = remote.options(
                    num_cpus=0, max_restarts=0, max_concurrency=THREADS, scheduling_strategy=place
                ).remote()
        answers = {node: self._actors[node].hello.remote() for node in nodes}
        ray.wait(list(answers.values()), num_returns=len(answers), timeout=timeout_s)
        out = {node: self._hello_of(node, answer, timeout_s) for node, answer in answers.items()}
        again = [node for node in nodes if node in former and "problem" in out[node]]
        # One that died since its last load is replaced; what fails when it is new, stays so.
        return {**out, **self.start(again, timeout_s)} if again else out

    def _hello_of(self, node: str, answer: Any, timeout_s: float) -> dict[str, Any]:
        try:
            hello: dict[str, Any] = ray.get(answer, timeout=0)
            return hello
        except ray.exceptions.GetTimeoutError:
            reason = f"its load actor did not come up in {timeout_s:.0f} s"
        except ray.exceptions.RayError as error:
            reason = why(error)
        self._dismiss(node)
        return {"problem": reason}

    def _dismiss(self, node: str) -> None:
        actor = self._actors.pop(node, None)
        if actor is not None:
            ray.kill(actor)

    def begin(
        self,
        loads: Mapping[str, Mapping[str, Any]],
        timing: Mapping[str, Any],
        mark: Mapping[str, str],
        sample: bool,
    ) -> None:
        """Start a load on all these nodes, whose actors are up; returns at once. A thread watches
        them to their end."""
        self._skew_s, self._opened = None, False
        connect_s = max(load["connect_timeout_s"] for load in loads.values())
        self._gate_deadline = now() + timing["warmup_max_s"] + connect_s + GATE_S
        self._numbers += 1
        self._off.clear()
        self._broken = None
        self._tasks = []
        for node, load in loads.items():
            actor = self._actors[node]
            future = actor.drive.remote(self._numbers, load, timing, mark, sample)
            self._tasks.append(NodeTask(node, actor, future))
        self._thread = threading.Thread(target=self._watch, name="actors", daemon=True)
        self._thread.start()

    def status(self) -> dict[str, Any]:
        """How each node stands, whether all have ended, and what broke in here."""
        ended = self._thread is None or not self._thread.is_alive()
        states = {
            task.node: task.state | {"ended": task.outcome and task.outcome["kind"]}
            for task in self._tasks
        }
        return {"nodes": states, "ended": ended, "broken": self._broken}

    def collect(self) -> dict[str, Any]:
        return {"outcomes": {one.node: one.outcome for one in self._tasks}, "skew_s": self._skew_s}

    def call_off(self) -> None:
        self._off.set()

    def stop(self) -> None:
        for node in list(self._actors):
            self._dismiss(node)

    @property
    def _working(self) -> list[NodeTask]:
        return [task for task in self._tasks if task.outcome is None]

    def _watch(self) -> None:
        """Until every node has ended or is lost."""
        self._end_by = None
        try:
            while self._working:
                self._listen(TICK_S)
                self._step()
            # How differently long nodes took from the message to the first window.
            after = [(task.outcome or {}).get("opened_after_s") for task in self._tasks]
            known = [seconds for seconds in after if seconds is not None]
            if self._skew_s is not None and known:
                self._skew_s = round(self._skew_s + max(known) - min(known), 6)
        except BaseException as error:  # the parent must hear of it, whatever it is
            self._broken = f"{type(error).__name__}: {error}"
            raise

    def _step(self) -> None:
        if not self._opened:
            self._open_gate()
        if self._off.is_set() and self._end_by is None:
            self._end_by = now() + CALL_OFF_S
            for task in self._working:
                task.actor.call_off.remote(self._numbers)
        if self._end_by is not None and now() > self._end_by:
            for task in self._working:
                self._lose(task, "it did not answer when the load was called off")

    def _listen(self, seconds: float) -> None:
        """Take in answers of nodes for so many seconds; nodes that died or are silent are lost."""
        until = now() + seconds
        for task in self._working:
            if task.question is None:
                task.question = task.actor.progress.remote(self._numbers)
        while (left := until - now()) > 0 and (working := self._working):
            open_ = [one.question for one in working if one.question is not None]
            open_ += [one.future for one in working]
            done, _ = ray.wait(open_, num_returns=1, timeout=left)
            for task in working:
                self._take(task, done)
        for task in self._working:
            if now() - task.heard > SILENT_S:
                self._lose(task, f"it has not answered for {SILENT_S:.0f} s")

    def _take(self, task: NodeTask, done: list[Any]) -> None:
        if task.future in done:
            try:
                task.outcome = ray.get(task.future, timeout=SILENT_S)
            except ray.exceptions.RayError as error:
                self._lose(task, why(error))
            return
        if task.question in done:
            question, task.question = task.question, None
            try:
                state = ray.get(question, timeout=SILENT_S)
            except ray.exceptions.ActorUnavailableError:
                return  # it may come back; silence decides
            except ray.exceptions.RayError as error:
                self._lose(task, why(error))
                return
            task.heard = now()
            if state is not None:
                task.state, task.counted = state, task.heard

    def _lose(self, task: NodeTask, reason: str) -> None:
        task.lose(reason)
        self._dismiss(task.node)

    def _open_gate(self) -> None:
        """When every node that works is ready: tell all to begin, and bound how far apart they do.

        One that is not ready long after all must be is lost.
        """
        late = [task for task in self._working if not task.state.get("at_gate")]
        if late and now() <= self._gate_deadline:
            return
        for task in late:
            self._lose(task, "it did not get ready to measure in time")
        working = self._working
        if not working:
            return
        self._opened = True
        sent = now()
        calls = [task.actor.begin.remote(self._numbers) for task in working]
        answered, silent = ray.wait(calls, num_returns=len(calls), timeout=SILENT_S)
        if answered and not silent and len(working) > 1:
            self._skew_s = now() - sent
        elif len(working) > 1:
            self._skew_s = SILENT_S


def why(error: BaseException) -> str:
    """Ray's reason in one line: without ids and the traceback around it."""
    if isinstance(error, ray.exceptions.ActorUnavailableError):
        match = re.search(r"RPC error: (.+?)(?: rpc_code|$)", str(error), re.MULTILINE)
        return f"the connection to its actor broke{f' ({match[1]})' if match else ''}"
    lines = [line for line in str(error).splitlines() if line.strip() and line[0] not in "\t "]
    text = lines[-1].strip() if lines else type(error).__name__
    for mark in (" Node Id:", " The worker ", " Worker exit", ": Worker", " Reference"):
        text = text.partition(mark)[0]
    return text.rstrip(". :")


# The commands.


class JoinRefused(Exception):
    """The cluster cannot be joined: one line for the user."""


def join(address: str, namespace: str) -> list[dict[str, Any]]:
    """Connect to the cluster. Returns its nodes; raises JoinRefused."""
    try:
        if address != "auto":
            _greet(address)
        ray.init(
            address=address,
            namespace=namespace,
            log_to_driver=False,
            runtime_env={
                "py_modules": [str(Path(serve_bench.__file__).parent)],
                "excludes": ["**/__pycache__"],
            },
        )
    except ray.exceptions.AuthenticationError as error:
        raise JoinRefused(
            f"the Ray cluster at {address} refuses the token: give RAY_AUTH_MODE=token and its "
            f"RAY_AUTH_TOKEN, or put the token in ~/.ray/auth_token"
        ) from error
    except (RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
        raise JoinRefused(refusal(address, error)) from error
    return nodes()


def _greet(address: str) -> None:
    """Ask the cluster for its name: a wrong token is refused at once, where `ray.init` would go on
    trying for minutes (Ray 2.60)."""
    try:
        raylet: Any = importlib.import_module("ray._raylet")
        client = raylet.GcsClient
    except (ImportError, AttributeError):
        return  # another Ray may have it elsewhere: then `ray.init` is waited for
    client(address=address)


def refusal(address: str, error: BaseException) -> str:
    """What Ray raised, in one line that says what to do."""
    text = str(error)
    versions = re.findall(r"Ray: (\S+)\s+Python: (\S+)", text)
    if "Version mismatch" in text and len(versions) >= 2:
        (theirs, their_python), (ours, our_python) = versions[:2]
        return (
            f"the cluster at {address} runs Ray {theirs} on Python {their_python}, and here are "
            f"Ray {ours} and Python {our_python}: use an interpreter with the cluster's"
        )
    first = re.split(r"(?<=[a-z)])\. ", " ".join(text.split()))[0]
    return f"cannot join the Ray cluster at {address}: {(first or type(error).__name__)[:300]}"


def nodes() -> list[dict[str, Any]]:
    """All nodes that the cluster knows, dead ones too, as JSON content."""
    untyped: Any = ray
    return [
        {
            "node_id": one["NodeID"],
            "ip": one["NodeManagerAddress"],
            "hostname": one["NodeManagerHostname"],
            "alive": bool(one["Alive"]),
            "is_head": "node:__internal_head__" in one["Resources"],
            "cpus": one["Resources"].get("CPU", 0.0) if one["Alive"] else None,
        }
        for one in untyped.nodes()
    ]


def commands_of(loads: LoadActors) -> dict[str, Callable[..., Any]]:
    """The commands by name: each takes the body of a command and returns its answer, if any."""
    return {
        "join": lambda **body: {"nodes": join(**body)},
        "nodes": lambda: {"nodes": nodes()},
        # A load from an actor on each node: `status` says how it stands, `collect` what came of it.
        "start": lambda **body: {"actors": loads.start(**body)},
        "drive": loads.begin,
        "status": loads.status,
        "collect": loads.collect,
        "call_off": loads.call_off,
        "stop": loads.stop,
    }


def _read_commands(commands: Queue[dict[str, Any]], source: TextIO) -> None:
    """Ends the process at once when stdin ends: the parent is dead, and Ray ends the actors."""
    for line in source:
        try:
            commands.put(json.loads(line))
        except ValueError:  # the parent died in the middle of it
            break
    os._exit(0)


def main() -> None:
    protocol = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Ray prints to stdout: to the log with it

    commands: Queue[dict[str, Any]] = Queue()
    threading.Thread(target=_read_commands, args=(commands, sys.stdin), daemon=True).start()
    actions = commands_of(LoadActors())
    while True:
        command = commands.get()
        number = command.pop("number")
        action = actions[command.pop("command")]
        try:
            answer = {"event": "done", **(action(**command) or {})}
        except JoinRefused as refused:
            answer = {"event": "refused", "message": str(refused), "detail": []}
        except Exception as error:  # noqa: BLE001 - whatever Ray raises must reach the parent
            traceback.print_exc()
            detail = traceback.format_exc().splitlines()[-12:]
            message = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            answer = {"event": "refused", "message": message, "detail": detail}
        protocol.write(json.dumps({**answer, "number": number}) + "\n")
        protocol.flush()


if __name__ == "__main__":
    main()
