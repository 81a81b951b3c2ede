"""The parent's side of looking at the Serve processes of every node: lists, dumps and records them.

Rule: as in crew.py, nothing here imports ray or waits without an end. A node that cannot be looked
at is a line with its name, and the rest goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from serve_bench.core.errors import RunFailed
from serve_bench.core.nodes import Node, full_name
from serve_bench.nodes.actors import END_S
from serve_bench.nodes.crew import ASK_S, HIRE_S, NodeCrew, NodesFailed
from serve_bench.observing.processes import InUse, ServeProcess
from serve_bench.observing.profiler import Options

LOOK_S: Final = 0.5
"""How long CPU is looked at for a list."""

ANSWER_S: Final = 30.0
"""How long a node may take to list its processes, or to dump stacks."""

POLL_S: Final = 0.25


@dataclass(frozen=True)
class Dumped:
    """The stacks of a process of a node."""

    node: Node
    pid: int
    text: str


@dataclass(frozen=True)
class Brought:
    """A recording of a process of a node, and the file that holds what py-spy gave."""

    node: Node
    pid: int
    file: Path
    samples: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class FromNodes:
    """What all nodes recorded. `interrupted`: by Ctrl-C; what was sampled until then is kept."""

    done: tuple[Brought, ...]
    failed: tuple[RunFailed, ...]
    interrupted: bool = False


class WatchCrew(NodeCrew):
    """A NodeCrew that looks at processes. `start` first; leaving it ends all.

    `watch` puts an actor on nodes, the other methods take nodes that have one.
    """

    def watch(self, nodes: Iterable[Node]) -> tuple[tuple[Node, ...], tuple[RunFailed, ...]]:
        """The nodes that can be looked at now, and why the others cannot."""
        wanted = tuple(nodes)
        body = {"nodes": [node.node_id for node in wanted], "timeout_s": HIRE_S}
        hands = self._ask("watch", body, 2 * HIRE_S + ASK_S)["hands"]
        here = tuple(node for node in wanted if "problem" not in hands[node.node_id])
        failed = [
            self._failed(node, hands[node.node_id]["problem"])
            for node in wanted
            if node not in here
        ]
        return here, tuple(failed)

    def processes(
        self, nodes: Iterable[Node]
    ) -> tuple[dict[str, tuple[InUse, ...]], tuple[RunFailed, ...]]:
        """The Serve processes of each node, by node id, and what went wrong."""
        wanted = tuple(nodes)
        bodies = {node.node_id: {"seconds": LOOK_S} for node in wanted}
        told, failed = self._each("processes", bodies, wanted)
        found = {
            node.node_id: tuple(
                InUse(ServeProcess(**one["process"]), one["cpu"], one["rss_bytes"])
                for one in answer
            )
            for node, answer in told
        }
        return found, failed

    def dump(
        self, pids: Mapping[Node, list[int]], *, native: bool
    ) -> tuple[tuple[Dumped, ...], tuple[RunFailed, ...]]:
        """The stacks of these processes now, and what went wrong."""
        bodies = {node.node_id: {"pids": some, "native": native} for node, some in pids.items()}
        told, failed = self._each("dump", bodies, tuple(pids))
        done, more = [], []
        for node, answer in told:
            for one in answer:
                if "problem" in one:
                    more.append(self._failed(node, one["problem"]))
                else:
                    done.append(Dumped(node, one["pid"], one["text"]))
        return tuple(done), (*failed, *more)

    def record(
        self,
        pids: Mapping[Node, list[int]],
        options: Options,
        format: str,
        duration_s: float,
        folder: Path,
        on_progress: Callable[[float], None] = lambda seconds: None,
    ) -> FromNodes:
        """Record these processes at once; what py-spy gave is brought into the folder.

        `on_progress` takes the seconds since all nodes sample. On Ctrl-C what was sampled is
        brought, within 40 s. Raises NodesFailed when the program breaks.
        """
        body = {
            "pids": {node.node_id: some for node, some in pids.items()},
            "options": asdict(options),
            "format": format,
            "duration_s": duration_s,
            "mark": self._marks,
        }
        interrupted = False
        try:
            self._ask("record", body, ASK_S)
            self._await_recorded(on_progress)
        except KeyboardInterrupt:
            interrupted = True
            self._ask("end_recording", {}, ASK_S)
            deadline = time.monotonic() + END_S + 2.0
            while not self._ask("recording", {}, ASK_S)["ended"] and time.monotonic() < deadline:
                time.sleep(0.1)
        outcomes = self._ask("bring", {"folder": str(folder)}, ASK_S)["outcomes"]
        return self._brought(outcomes, {node.node_id: node for node in pids}, interrupted)

    def _await_recorded(self, on_progress: Callable[[float], None]) -> None:
        while True:
            status = self._ask("recording", {}, ASK_S)
            if status["broken"] is not None:
                raise NodesFailed(f"the program of the nodes broke: {status['broken']}")
            if status["ended"]:
                return
            if status["sampled_s"] is not None:
                on_progress(status["sampled_s"])
            time.sleep(POLL_S)

    def _brought(
        self, outcomes: Mapping[str, Any], nodes: Mapping[str, Node], interrupted: bool
    ) -> FromNodes:
        done, failed = [], []
        for node_id, told in outcomes.items():
            node = nodes[node_id]
            if told["kind"] == "lost":
                failed.append(self._failed(node, f"its recordings are lost: {told['reason']}"))
            for one in told["processes"]:
                if "problem" in one:
                    failed.append(self._failed(node, one["problem"]))
                    continue
                notes = tuple(f"{self.named(node)}: {note}" for note in one["notes"])
                done.append(Brought(node, one["pid"], Path(one["file"]), one["samples"], notes))
        return FromNodes(tuple(done), tuple(failed), interrupted)

    def named(self, node: Node) -> str:
        """How a node is called in a sentence."""
        return full_name(node, [one for one in self.nodes if one.alive])

    def _each(
        self, method: str, bodies: Mapping[str, Mapping[str, Any]], nodes: tuple[Node, ...]
    ) -> tuple[list[tuple[Node, Any]], tuple[RunFailed, ...]]:
        body = {"method": method, "bodies": bodies, "timeout_s": ANSWER_S}
        told = self._ask("each", body, ANSWER_S + ASK_S)["nodes"]
        answers = [
            (node, told[node.node_id]["answer"]) for node in nodes if "answer" in told[node.node_id]
        ]
        failed = [
            self._failed(node, told[node.node_id]["problem"])
            for node in nodes
            if "problem" in told[node.node_id]
        ]
        return answers, tuple(failed)

    def _failed(self, node: Node, reason: str) -> RunFailed:
        return RunFailed(f"{self.named(node)}: {reason}")
