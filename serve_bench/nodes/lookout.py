"""The watching actors of a cluster and one recording on all of them, seen from the program.

They are hired, asked and lost as load actors are. Rule: all nodes record until each of them has
sampled for the time that was asked for, as several processes of one host do.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

import ray

from serve_bench.nodes.conductor import TICK_S, Conductor, Hand, now, why
from serve_bench.nodes.watching import END_S, WatchActor
from serve_bench.observing.profiler import READY_S

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
        self._numbers += 1
        self._off.clear()
        self._broken = self._sampling_since = None
        self._duration_s, self._began = duration_s, now()
        self._hands = []
        for node, wanted in pids.items():
            actor = self._actors[node]
            order = (self._numbers, wanted, options, format, duration_s, mark)
            self._hands.append(Hand(node, actor, actor.record.remote(*order)))
        self._thread = threading.Thread(target=self._watch, name="lookout", daemon=True)
        self._thread.start()

    def status(self) -> dict[str, Any]:
        """As of a load, and for how long all nodes have been sampling; None before they do."""
        since = self._sampling_since
        return {**super().status(), "sampled_s": None if since is None else now() - since}

    def bring(self, folder: Path) -> dict[str, Any]:
        """What came of each node, what was recorded in files of this folder (`file`)."""
        out = {}
        for hand in self._hands:
            told = dict(hand.outcome or {"kind": "lost", "reason": "it gave no answer"})
            told["processes"] = [
                self._put(folder / f"{hand.node}-{one['pid']}", one)
                for one in told.get("processes", ())
            ]
            out[hand.node] = told
        return out

    def _put(self, file: Path, told: Mapping[str, Any]) -> dict[str, Any]:
        if "content" not in told:
            return dict(told)
        file.write_bytes(told["content"])
        return {**{name: told[name] for name in told if name != "content"}, "file": str(file)}

    # -- the thread -----------------------------------------------------------------------------

    def _watch(self) -> None:
        """Until every node has told what it recorded, or is lost."""
        deadline: float | None = None
        try:
            while self._working:
                self._listen(TICK_S)
                self._note_sampling()
                if self._is_over():
                    deadline = deadline or now() + END_S
                    self._end(deadline)
        except BaseException as error:  # the parent must hear of it, whatever it is
            self._broken = f"{type(error).__name__}: {error}"
            raise

    def _end(self, deadline: float) -> None:
        """Tell those that still work, again and again: a first word may come before the recording
        itself. Who is late is lost."""
        for hand in self._working:
            if now() > deadline:
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

    def _is_over(self) -> bool:
        since = self._sampling_since
        return self._off.is_set() or (since is not None and now() - since >= self._duration_s)
