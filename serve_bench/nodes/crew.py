"""The parent's side: starts the program of the nodes, orders loads and recordings.

Rule: nothing here imports ray, and nothing here waits without an end. The program dies with this
process (stdin), and with it Ray ends the actors, and the load workers with those.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

from serve_bench.core.errors import RunFailed
from serve_bench.core.load_result import LoadResult, Phase, Progress
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.nodes import Lost, Node, full_name, node_fact
from serve_bench.core.own_module import finding_ours, own_module
from serve_bench.core.result import JsonObject
from serve_bench.core.schema import built, plain
from serve_bench.load import LoadError
from serve_bench.load.merge import combine
from serve_bench.nodes.actors import END_S
from serve_bench.observing.processes import InUse, ServeProcess
from serve_bench.observing.profiler import Recordings, SpyOptions
from serve_bench.serving.child import DETAIL_LINES, Child, ChildError, last_lines
from serve_bench.serving.strays import marks

# --------------------------------------------------------------------------------------------------
# What all nodes of a load give back: progress while it runs, each one's part, the sum of all.
#
# Rule: only reads the answers of the program and adds up.

Part: TypeAlias = LoadResult | Lost


@dataclass(frozen=True)
class NodesResult:
    """Parts and usage by node id.

    `skew_s`: no two nodes began to measure further apart than this; None when it is not known
    (called off before that, or one node alone). `usage`: the summary of the Serve processes of a
    node, where it was asked for. `began_at_ns`: when a node began to measure, by its own clock
    (since the epoch).
    """

    parts: Mapping[str, Part]
    usage: Mapping[str, JsonObject] = field(default_factory=dict)
    skew_s: float | None = None
    began_at_ns: Mapping[str, int] = field(default_factory=dict)

    @property
    def lost(self) -> dict[str, Lost]:
        """The nodes that were lost."""
        return {name: part for name, part in self.parts.items() if isinstance(part, Lost)}

    def combined(self, load: Load) -> LoadResult | None:
        """The living nodes' results as one; None where none is left.

        Raises BrokenAccount when the sum does not balance.
        """
        living = [part for part in self.parts.values() if isinstance(part, LoadResult)]
        return combine(load, living) if living else None

    def node_facts(self, nodes: Iterable[Node], loads: Mapping[str, Load]) -> list[dict[str, Any]]:
        """For `Trial.client["nodes"]`: one dict for each of `nodes` that had a load."""
        return [
            node_fact(
                node, loads[node.node_id], self.parts[node.node_id], self.usage.get(node.node_id)
            )
            for node in nodes
            if node.node_id in self.parts
        ]


def _load_error(outcome: Mapping[str, Any]) -> LoadError:
    return LoadError(*(outcome[name] for name in ("error_class", "host", "port", "reason")))


def part_of(outcome: Mapping[str, Any]) -> Part:
    """What came of a node, from the program's answer about it."""
    kind = outcome["kind"]
    if kind == "load":
        return built(LoadResult, outcome["result"], "result")
    if kind == "lost":
        return Lost(outcome["reason"], outcome["completed"], outcome["failed"], outcome["age_s"])
    if kind == "load_error":
        return Lost(str(_load_error(outcome)))
    return Lost(outcome.get("reason", "called off before it measured"))


_ORDER: Final[Sequence[Phase]] = ("connect", "warmup", "measure", "drain")


def summed(states: Iterable[Mapping[str, Any]]) -> Progress | None:
    """The nodes that work, as one: rates and counts added, the phase of the one that is least far.

    Percentiles of several nodes cannot be had from theirs, so there are none. None before any node
    has reported.
    """
    known = [one["progress"] for one in states if one.get("progress") and not one.get("ended")]
    if not known:
        return None
    phase = min((one["phase"] for one in known), key=_ORDER.index)
    same = [one for one in known if one["phase"] == phase]
    return Progress(
        phase=phase,
        elapsed_s=max(one["elapsed_s"] for one in known),
        remaining_s=max(one["remaining_s"] for one in known),
        left=sum(one["left"] for one in known),
        rate=sum(one["rate"] for one in known),
        completed=sum(one["completed"] for one in same),
        failed=sum(one["failed"] for one in same),
    )


# --------------------------------------------------------------------------------------------------

REACH_S: Final = 5.0
JOIN_S: Final = 18.0
"""A Ray that is there is joined in 2 s; one that only listens makes `ray.init` try for minutes."""

ASK_S: Final = 20.0
ACTORS_S: Final = 60.0
"""How long load actors may take to come up: the package travels to each node first."""

POLL_S: Final = 0.5
CALL_OFF_S: Final = 12.0
STOP_S: Final = 3.0


class NodesFailed(RunFailed):
    """The nodes of a cluster cannot drive a load: one line."""


class NodesInterrupted(KeyboardInterrupt):
    """Ctrl-C while measuring: `result` is what the nodes had measured by then."""

    def __init__(self, result: NodesResult) -> None:
        self.result = result
        super().__init__("interrupted")


class NodeCrew:
    """Load actors on the nodes of the Ray cluster at `address`, from `start` to `close`.

    A context manager: leaving it ends all. `address`: HOST:PORT of the cluster, or `auto`. `env`:
    in place of this process's environment (tokens, say). `python`: an interpreter with the Ray of
    the cluster. `log` takes Ray's chatter.
    """

    def __init__(
        self,
        address: str,
        run_id: str,
        log: Path,
        env: Mapping[str, str] | None = None,
        python: str | None = None,
    ) -> None:
        self.address = address
        self.log = log
        self.nodes: tuple[Node, ...] = ()
        self.versions: Mapping[str, str] = {}
        self._marks = marks(run_id)
        self._namespace = f"serve_bench_nodes_{run_id}"
        self._env = dict(os.environ if env is None else env)
        self._python = python or sys.executable
        self._child: Child | None = None
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Join the cluster and list its nodes. Raises NodesFailed within 25 s."""
        reach(self.address)
        self._child = Child(
            [self._python, "-u", *own_module("nodes")],
            log=self.log,
            cwd=Path("/"),  # Ray has its workers look for modules in the current folder too
            env=finding_ours({**self._env, **self._marks}),
            name="the program of the nodes",
        )
        body = {"address": self.address, "namespace": self._namespace}
        try:
            answer = self._ask("join", body, JOIN_S)
        except BaseException as error:  # Ctrl-C too: the program must not stay
            self.close()
            if isinstance(error, NodesFailed) and "gave no answer" in str(error):
                raise NodesFailed(
                    f"no Ray cluster answers at {self.address} within {JOIN_S:.0f} s",
                    tuple(last_lines(self.log)),
                ) from None
            raise
        self.versions = answer["versions"]
        self._note_nodes(answer)

    def look(self) -> tuple[Node, ...]:
        """The nodes as they are now, into `nodes` too. Raises NodesFailed."""
        self._note_nodes(self._ask("nodes", {}, ASK_S))
        return self.nodes

    def drive(
        self,
        loads: Mapping[str, Load],
        timing: Timing,
        *,
        on_progress: Callable[[Progress], None] | None = None,
        sample: bool = False,
    ) -> NodesResult:
        """Drive a load from each of these nodes (by node id), all measured together.

        All warm up until each is steady or its warm-up's maximum is over.
        `on_progress` gets the sum of all nodes about twice a second.
        `sample`: also what the Serve processes of each node used. A node that dies or falls silent
        is a Lost in the result. Raises NodesFailed when no node is left, LoadError when no target
        can be reached, NodesInterrupted with the result so far on Ctrl-C while measuring, and
        KeyboardInterrupt on one before.
        """
        self._check_loads(loads)
        lost = self._start_actors(loads)
        left = {node: load for node, load in loads.items() if node not in lost}
        body = {
            "loads": {node: plain(load) for node, load in left.items()},
            "timing": asdict(timing),
            "mark": self._marks,
            "sample": sample,
        }
        try:
            self._ask("drive", body, ASK_S)

            def look(status: Mapping[str, Any]) -> None:
                if on_progress is not None and (progress := summed(status["nodes"].values())):
                    on_progress(progress)

            self._await_end("status", POLL_S, look)
        except KeyboardInterrupt as pressed:
            self._end_early("call_off", "status", CALL_OFF_S)
            answer = self._ask("collect", {}, ASK_S)
            some = {node: one for node, one in answer["outcomes"].items() if one is not None}
            result = self._result(some, answer["skew_s"], lost)
            if all(isinstance(part, Lost) for part in result.parts.values()):
                raise
            raise NodesInterrupted(result) from pressed
        return self._collect(lost)

    def close(self) -> None:
        """End the actors and the program."""
        child, self._child = self._child, None
        if child is None:
            return
        try:
            self._number += 1
            with contextlib.suppress(ChildError):
                child.ask("stop", {}, STOP_S, number=self._number)
        finally:
            child.kill()
            child.wait()

    # -- a load ---------------------------------------------------------------------------------

    def _check_loads(self, loads: Mapping[str, Load]) -> None:
        known = {node.node_id for node in self.nodes}
        for node in loads:
            if node not in known:
                raise NodesFailed(f"the cluster at {self.address} has no node {node}")
        clients = {load.client for load in loads.values()}
        if len(clients) != 1:
            raise NodesFailed(f"the nodes must have one client: {', '.join(sorted(clients))}")

    def _start_actors(self, loads: Mapping[str, Load]) -> dict[str, Lost]:
        """An actor on each node; those without one are lost. Raises NodesFailed."""
        body = {"nodes": list(loads), "timeout_s": ACTORS_S}
        actors = self._ask("start", body, 2 * ACTORS_S + ASK_S)["actors"]
        lost = {node: Lost(one["problem"]) for node, one in actors.items() if "problem" in one}
        if len(lost) == len(loads):
            raise self._all_lost(lost)
        return lost

    def _await_end(
        self, command: str, poll_s: float, look: Callable[[Mapping[str, Any]], None]
    ) -> None:
        """Ask how a task stands until it has ended. Raises NodesFailed when the program breaks."""
        while True:
            status = self._ask(command, {}, ASK_S)
            if status["broken"] is not None:
                raise NodesFailed(f"the program of the nodes broke: {status['broken']}")
            if status["ended"]:
                return
            look(status)
            time.sleep(poll_s)

    def _end_early(self, order: str, command: str, seconds: float) -> None:
        """After Ctrl-C: order the end, and wait so long for it."""
        self._ask(order, {}, ASK_S)
        deadline = time.monotonic() + seconds
        while not self._ask(command, {}, ASK_S)["ended"] and time.monotonic() < deadline:
            time.sleep(0.1)

    def _collect(self, lost: Mapping[str, Lost]) -> NodesResult:
        answer = self._ask("collect", {}, ASK_S)
        outcomes = answer["outcomes"]
        result = self._result(outcomes, answer["skew_s"], lost)
        if len(result.lost) == len(result.parts):
            refused = [one for one in outcomes.values() if one["kind"] == "load_error"]
            if len(refused) == len(outcomes):
                raise _load_error(refused[0])
            raise self._all_lost(result.lost)
        return result

    def _result(
        self, outcomes: Mapping[str, Any], skew_s: float | None, lost: Mapping[str, Lost]
    ) -> NodesResult:
        for node, one in outcomes.items():
            if one["kind"] == "broken":
                raise NodesFailed(
                    f"the load on node {self._name_of(node)} broke: {one['reason']}",
                    tuple(one["detail"]),
                )
        parts = {node: part_of(one) for node, one in outcomes.items()}
        usage = {node: one["usage"] for node, one in outcomes.items() if one.get("usage")}
        began = {node: one["began_at_ns"] for node, one in outcomes.items() if "began_at_ns" in one}
        return NodesResult({**lost, **parts}, usage, skew_s, began)

    def _all_lost(self, lost: Mapping[str, Lost]) -> NodesFailed:
        first, *others = (f"{self._name_of(node)}: {one.reason}" for node, one in lost.items())
        return NodesFailed(f"no node could drive its load: {first}", tuple(others))

    def _name_of(self, node_id: str) -> str:
        node = next((node for node in self.nodes if node.node_id == node_id), None)
        return node_id[:12] if node is None else f"{node.hostname} ({node.ip}, {node_id[:12]})"

    # -- the program ----------------------------------------------------------------------------

    def _note_nodes(self, answer: Mapping[str, Any]) -> None:
        self.nodes = built(tuple[Node, ...], answer["nodes"], "nodes")

    def _ask(self, command: str, body: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        assert self._child is not None, "start() first"
        self._number += 1
        try:
            return self._child.ask(command, body, timeout_s, number=self._number)
        except ChildError as error:
            detail = [line for line in error.detail if line.strip()]
            if not self._child.alive():
                detail = last_lines(self.log)
            raise NodesFailed(str(error), tuple(detail[-DETAIL_LINES:])) from None


def reach(address: str) -> None:
    """Raises NodesFailed unless something listens at the address; `auto` is Ray's to find."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise NodesFailed(f"the address of a Ray cluster is HOST:PORT or auto, got {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
    except OSError as error:
        reason = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise NodesFailed(f"no Ray cluster at {address}: {reason.lower()}") from None


# --------------------------------------------------------------------------------------------------
# The Serve processes of every node: lists, dumps and recordings of them.
#
# Rule: a node that cannot be looked at is a line with its name, and the rest goes on.

LOOK_S: Final = 0.5
"""How long the CPU use of processes is watched for a list."""

ANSWER_S: Final = 30.0
"""How long a node may take to list its processes, or to dump stacks."""


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


class WatchCrew(NodeCrew):
    """A NodeCrew that looks at processes. `start` first; leaving it ends all.

    `watch` puts an actor on nodes, the other methods take nodes that have one.
    """

    def watch(self, nodes: Iterable[Node]) -> tuple[tuple[Node, ...], tuple[RunFailed, ...]]:
        """The nodes that can be looked at now, and why the others cannot."""
        wanted = tuple(nodes)
        body = {"nodes": [node.node_id for node in wanted], "timeout_s": ACTORS_S}
        actors = self._ask("watch", body, 2 * ACTORS_S + ASK_S)["actors"]
        here = tuple(node for node in wanted if "problem" not in actors[node.node_id])
        return here, self._problems(actors, wanted)

    def processes(
        self, nodes: Iterable[Node]
    ) -> tuple[dict[str, tuple[InUse, ...]], tuple[RunFailed, ...]]:
        """The Serve processes of each node, by node id, and what went wrong."""
        wanted = tuple(nodes)
        bodies = {node.node_id: {"seconds": LOOK_S} for node in wanted}
        answers, failed = self._each("processes", bodies, wanted)
        used = {
            node.node_id: tuple(
                InUse(ServeProcess(**one["process"]), one["cpu"], one["rss_bytes"])
                for one in answer
            )
            for node, answer in answers
        }
        return used, failed

    def dump(
        self, pids: Mapping[Node, list[int]], *, native: bool
    ) -> tuple[tuple[Dumped, ...], tuple[RunFailed, ...]]:
        """The stacks of these processes now, and what went wrong."""
        bodies = {node.node_id: {"pids": some, "native": native} for node, some in pids.items()}
        answers, failed = self._each("dump", bodies, tuple(pids))
        done, more = [], []
        for node, answer in answers:
            for one in answer:
                if "problem" in one:
                    more.append(self._failed(node, one["problem"]))
                else:
                    done.append(Dumped(node, one["pid"], one["text"]))
        return tuple(done), (*failed, *more)

    def record(
        self,
        pids: Mapping[Node, list[int]],
        options: SpyOptions,
        format: str,
        duration_s: float,
        folder: Path,
        on_progress: Callable[[float], None] = lambda seconds: None,
    ) -> Recordings[Brought]:
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

            def look(status: Mapping[str, Any]) -> None:
                if status["sampled_s"] is not None:
                    on_progress(status["sampled_s"])

            self._await_end("recording", POLL_S / 2, look)
        except KeyboardInterrupt:
            interrupted = True
            self._end_early("end_recording", "recording", END_S + 2.0)
        outcomes = self._ask("bring", {"folder": str(folder)}, ASK_S)["outcomes"]
        return self._brought(outcomes, {node.node_id: node for node in pids}, interrupted)

    def _brought(
        self, outcomes: Mapping[str, Any], nodes: Mapping[str, Node], interrupted: bool
    ) -> Recordings[Brought]:
        done, failed = [], []
        for node_id, outcome in outcomes.items():
            node = nodes[node_id]
            if outcome["kind"] == "lost":
                failed.append(self._failed(node, f"its recordings are lost: {outcome['reason']}"))
            for one in outcome["processes"]:
                if "problem" in one:
                    failed.append(self._failed(node, one["problem"]))
                    continue
                notes = tuple(f"{self.named(node)}: {note}" for note in one["notes"])
                done.append(Brought(node, one["pid"], Path(one["file"]), one["samples"], notes))
        return Recordings(tuple(done), tuple(failed), interrupted)

    def named(self, node: Node) -> str:
        """How a node is called in a sentence."""
        return full_name(node, [one for one in self.nodes if one.alive])

    def _each(
        self, method: str, bodies: Mapping[str, Mapping[str, Any]], nodes: tuple[Node, ...]
    ) -> tuple[list[tuple[Node, Any]], tuple[RunFailed, ...]]:
        body = {"method": method, "bodies": bodies, "timeout_s": ANSWER_S}
        answers = self._ask("each", body, ANSWER_S + ASK_S)["nodes"]
        known = [(node, answers[node.node_id]) for node in nodes]
        results = [(node, one["answer"]) for node, one in known if "answer" in one]
        return results, self._problems(answers, nodes)

    def _problems(
        self, answers: Mapping[str, Mapping[str, Any]], nodes: Iterable[Node]
    ) -> tuple[RunFailed, ...]:
        every = ((node, answers[node.node_id].get("problem")) for node in nodes)
        return tuple(self._failed(node, problem) for node, problem in every if problem is not None)

    def _failed(self, node: Node, reason: str) -> RunFailed:
        return RunFailed(f"{self.named(node)}: {reason}")
