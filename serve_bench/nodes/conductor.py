"""The load actors of a cluster and one load on all of them, seen from the program.

Rule: a thread asks the actors how they stand and notices which do not answer, so the program always
answers its parent. Nodes begin together by message, and the round trip of that message bounds how
far apart they began: no clock of a node is compared with another's.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from serve_bench.nodes.actors import END_S, LoadActor, WatchActor
from serve_bench.observing.profiler import READY_S

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
class Hand:
    """One node's actor during a load."""

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


class Conductor:
    """All load actors, and the load that is under way."""

    actor_class: ClassVar[type] = LoadActor
    called: ClassVar[str] = "load actor"

    def __init__(self) -> None:
        self._actors: dict[str, Any] = {}
        self._numbers = 0
        self._hands: list[Hand] = []
        self._off = threading.Event()
        self._thread: threading.Thread | None = None
        self._broken: str | None = None
        self._skew_s: float | None = None
        self._opened = False
        self._gate_deadline = 0.0
        self._end_by: float | None = None

    def hire(self, nodes: list[str], program: str | None, timeout_s: float) -> dict[str, Any]:
        """An actor on each of these nodes: what it says, or `{"problem": why there is none}`
        after so many seconds."""
        remote: Any = ray.remote(self.actor_class)
        former = set(self._actors)
        for node in nodes:
            if node not in self._actors:
                place = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
                self._actors[node] = remote.options(
                    num_cpus=0,
                    max_restarts=0,
                    max_concurrency=THREADS,
                    scheduling_strategy=place,
                ).remote()
        answers = {node: self._actors[node].hello.remote(program) for node in nodes}
        ray.wait(list(answers.values()), num_returns=len(answers), timeout=timeout_s)
        out = {node: self._greeting(node, answer, timeout_s) for node, answer in answers.items()}
        again = [node for node in nodes if node in former and "problem" in out[node]]
        # One that died since its last load is replaced; what fails when it is new, stays so.
        return {**out, **self.hire(again, program, timeout_s)} if again else out

    def _greeting(self, node: str, answer: Any, timeout_s: float) -> dict[str, Any]:
        try:
            greeting: dict[str, Any] = ray.get(answer, timeout=0)
            return greeting
        except ray.exceptions.GetTimeoutError:
            reason = f"its {self.called} did not come up in {timeout_s:.0f} s"
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
        """Start a load on all these nodes, whose actors are up; returns at once."""
        self._skew_s, self._opened = None, False
        connect_s = max(load["connect_timeout_s"] for load in loads.values())
        self._gate_deadline = now() + timing["warmup_max_s"] + connect_s + GATE_S
        self._start("drive", {node: (load, timing, mark, sample) for node, load in loads.items()})

    def _start(self, method: str, orders: Mapping[str, tuple[Any, ...]]) -> None:
        """Have the actors of these nodes begin a task; a thread watches them to their end."""
        self._numbers += 1
        self._off.clear()
        self._broken = None
        self._hands = []
        for node, order in orders.items():
            actor = self._actors[node]
            future = getattr(actor, method).remote(self._numbers, *order)
            self._hands.append(Hand(node, actor, future))
        self._thread = threading.Thread(target=self._watch, name="conductor", daemon=True)
        self._thread.start()

    def status(self) -> dict[str, Any]:
        """How each node stands, whether all have ended, and what broke in here."""
        ended = self._thread is None or not self._thread.is_alive()
        states = {
            hand.node: hand.state | {"ended": hand.outcome and hand.outcome["kind"]}
            for hand in self._hands
        }
        return {"nodes": states, "ended": ended, "broken": self._broken}

    def collect(self) -> dict[str, Any]:
        """What came of each node, once all have ended."""
        return {"outcomes": {h.node: h.outcome for h in self._hands}, "skew_s": self._skew_s}

    def call_off(self) -> None:
        """End the load early."""
        self._off.set()

    def stop(self) -> None:
        """Dismiss all actors."""
        for node in list(self._actors):
            self._dismiss(node)

    # -- the thread -----------------------------------------------------------------------------

    @property
    def _working(self) -> list[Hand]:
        return [hand for hand in self._hands if hand.outcome is None]

    def _watch(self) -> None:
        """Until every node has ended or is lost."""
        self._end_by = None
        try:
            while self._working:
                self._listen(TICK_S)
                self._step()
            self._narrow_skew()
        except BaseException as error:  # the parent must hear of it, whatever it is
            self._broken = f"{type(error).__name__}: {error}"
            raise

    def _step(self) -> None:
        if not self._opened:
            self._open_gate()
        if self._off.is_set() and self._end_by is None:
            self._end_by = now() + CALL_OFF_S
            for hand in self._working:
                hand.actor.call_off.remote(self._numbers)
        if self._end_by is not None and now() > self._end_by:
            for hand in self._working:
                self._lose(hand, "it did not answer when the load was called off")

    def _listen(self, seconds: float) -> None:
        """Take in answers of nodes for so many seconds; nodes that died or are silent are lost."""
        until = now() + seconds
        for hand in self._working:
            if hand.question is None:
                hand.question = hand.actor.progress.remote(self._numbers)
        while (left := until - now()) > 0 and (working := self._working):
            open_ = [h.question for h in working if h.question is not None]
            open_ += [h.future for h in working]
            done, _ = ray.wait(open_, num_returns=1, timeout=left)
            for hand in working:
                self._take(hand, done)
        for hand in self._working:
            if now() - hand.heard > SILENT_S:
                self._lose(hand, f"it has not answered for {SILENT_S:.0f} s")

    def _take(self, hand: Hand, done: list[Any]) -> None:
        if hand.future in done:
            try:
                hand.outcome = ray.get(hand.future)
            except ray.exceptions.RayError as error:
                self._lose(hand, why(error))
            return
        if hand.question in done:
            question, hand.question = hand.question, None
            try:
                state = ray.get(question)
            except ray.exceptions.ActorUnavailableError:
                return  # it may come back; silence decides
            except ray.exceptions.RayError as error:
                self._lose(hand, why(error))
                return
            hand.heard = now()
            if state is not None:
                hand.state, hand.counted = state, hand.heard

    def _lose(self, hand: Hand, reason: str) -> None:
        hand.lose(reason)
        self._dismiss(hand.node)

    def _open_gate(self) -> None:
        """When every node that works is ready: tell all to begin, and bound how far apart they do.

        One that is not ready long after all must be is lost.
        """
        late = [hand for hand in self._working if not hand.state.get("at_gate")]
        if late and now() <= self._gate_deadline:
            return
        for hand in late:
            self._lose(hand, "it did not get ready to measure in time")
        working = self._working
        if not working:
            return
        self._opened = True
        sent = now()
        calls = [hand.actor.begin.remote(self._numbers) for hand in working]
        answered, silent = ray.wait(calls, num_returns=len(calls), timeout=SILENT_S)
        if answered and not silent and len(working) > 1:
            self._skew_s = now() - sent
        elif len(working) > 1:
            self._skew_s = SILENT_S

    def _narrow_skew(self) -> None:
        """Add how differently long nodes took from the message to the first window."""
        after = [(hand.outcome or {}).get("opened_after_s") for hand in self._hands]
        known = [seconds for seconds in after if seconds is not None]
        if self._skew_s is not None and known:
            self._skew_s = round(self._skew_s + max(known) - min(known), 6)


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


# --------------------------------------------------------------------------------------------------
# The watching actors of a cluster and one recording on all of them, seen from the program.
#
# They are hired, asked and lost as load actors are. Rule: all nodes record until each of them has
# sampled for the time that was asked for, as several processes of one host do.

START_S: Final = READY_S + 10.0
"""How long a node may take until it samples."""


class Lookout(Conductor):
    """All watching actors, and the recording that is under way."""

    actor_class: ClassVar[type] = WatchActor
    called: ClassVar[str] = "watching actor"

    def __init__(self) -> None:
        super().__init__()
        self._duration_s = 0.0
        self._began = 0.0
        self._sampling_since: float | None = None

    def each(
        self, method: str, bodies: Mapping[str, Mapping[str, Any]], timeout_s: float
    ) -> dict[str, Any]:
        """One call of each of these actors: `{"answer": ...}` or `{"problem": why}` of each."""
        calls = {n: getattr(self._actors[n], method).remote(**b) for n, b in bodies.items()}
        ray.wait(list(calls.values()), num_returns=len(calls), timeout=timeout_s)
        out: dict[str, Any] = {}
        for node, call in calls.items():
            try:
                out[node] = {"answer": ray.get(call, timeout=0)}
            except ray.exceptions.GetTimeoutError:
                out[node] = {"problem": f"it gave no answer in {timeout_s:.0f} s"}
            except ray.exceptions.RayError as error:
                out[node] = {"problem": why(error)}
        return out

    def record(
        self,
        pids: Mapping[str, list[int]],
        options: Mapping[str, Any],
        format: str,
        duration_s: float,
        mark: Mapping[str, str],
    ) -> None:
        """Start recording these processes of these nodes, whose actors are up; returns at once."""
        self._sampling_since = None
        self._duration_s, self._began = duration_s, now()
        more = (options, format, duration_s, mark)
        self._start("record", {node: (some, *more) for node, some in pids.items()})

    def status(self) -> dict[str, Any]:
        """As of a load, and for how long all nodes have been sampling; None before they do."""
        since = self._sampling_since
        return {**super().status(), "sampled_s": None if since is None else now() - since}

    def bring(self, folder: Path) -> dict[str, Any]:
        """What came of each node, what was recorded in files of this folder (`file`)."""
        out = {}
        for hand in self._hands:
            outcome = dict(hand.outcome or {"kind": "lost", "reason": "it gave no answer"})
            processes = [dict(one) for one in outcome.get("processes", ())]
            for one in processes:
                if "content" in one:
                    file = folder / f"{hand.node}-{one['pid']}"
                    file.write_bytes(one.pop("content"))
                    one["file"] = str(file)
            out[hand.node] = outcome | {"processes": processes}
        return out

    # -- the thread -----------------------------------------------------------------------------

    def _step(self) -> None:
        """When it is over, those that still work are called off again and again: a first call may
        come before the recording itself. A node that is late is lost."""
        self._note_sampling()
        since = self._sampling_since
        if not self._off.is_set() and (since is None or now() - since < self._duration_s):
            return
        self._end_by = self._end_by or now() + END_S
        for hand in self._working:
            if now() > self._end_by:
                self._lose(hand, f"it did not end its recording in {END_S:.0f} s")
            else:
                hand.actor.call_off.remote(self._numbers)

    def _note_sampling(self) -> None:
        if self._sampling_since is not None:
            return
        late = [hand for hand in self._working if not hand.state.get("sampling")]
        if late and now() - self._began < START_S:
            return
        for hand in late:
            self._lose(hand, f"it did not begin to record in {START_S:.0f} s")
        self._sampling_since = now()
