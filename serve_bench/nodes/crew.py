"""The parent's side: starts the program of the nodes, orders loads.

Rule: nothing here imports ray, and nothing here waits without an end. The program dies with this
process (stdin), and with it Ray ends the actors, and the load workers with those.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

from serve_bench.core.errors import BadInput, RunFailed
from serve_bench.core.facts import NodeFacts, TrialUsage
from serve_bench.core.load_result import LoadResult, Phase, Progress
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.nodes import Lost, Node, node_fact
from serve_bench.core.own_module import finding_ours, own_module
from serve_bench.core.schema import built, plain
from serve_bench.load.failures import LoadError
from serve_bench.load.merge import combine
from serve_bench.serving.child import Child, ChildError, last_lines
from serve_bench.serving.launch_spec import reachable
from serve_bench.serving.server import ChildDriver
from serve_bench.serving.strays import marks

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
    usage: Mapping[str, TrialUsage] = field(default_factory=dict)
    skew_s: float | None = None
    began_at_ns: Mapping[str, int] = field(default_factory=dict)

    @property
    def lost(self) -> dict[str, Lost]:
        return {name: part for name, part in self.parts.items() if isinstance(part, Lost)}

    def combined(self, load: Load) -> LoadResult | None:
        """The living nodes' results as one; None where none is left.

        Raises BrokenAccount when the sum does not balance.
        """
        living = [part for part in self.parts.values() if isinstance(part, LoadResult)]
        return combine(load, living) if living else None

    def node_facts(self, nodes: Iterable[Node], loads: Mapping[str, Load]) -> list[NodeFacts]:
        """What each of `nodes` did that had a load."""
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


class NodeCrew(ChildDriver):
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
        self._marks = marks(run_id)
        self._namespace = f"serve_bench_nodes_{run_id}"
        self._env = dict(os.environ if env is None else env)
        self._python = python or sys.executable

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
        self.nodes = built(tuple[Node, ...], answer["nodes"], "nodes")

    def look(self) -> tuple[Node, ...]:
        """The nodes as they are now, into `nodes` too. Raises NodesFailed."""
        answer = self._ask("nodes", {}, ASK_S)
        self.nodes = built(tuple[Node, ...], answer["nodes"], "nodes")
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
            self._await_end(on_progress)
        except KeyboardInterrupt as pressed:
            self._end_early()
            answer = self._ask("collect", {}, ASK_S)
            some = {node: one for node, one in answer["outcomes"].items() if one is not None}
            result = self._result(some, answer["skew_s"], lost)
            if all(isinstance(part, Lost) for part in result.parts.values()):
                raise
            raise NodesInterrupted(result) from pressed
        return self._collect(lost)

    def close(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        try:
            self._asked += 1
            with contextlib.suppress(ChildError):
                child.ask("stop", {}, STOP_S, number=self._asked)
        finally:
            child.kill()
            child.wait()

    def _start_actors(self, loads: Mapping[str, Load]) -> dict[str, Lost]:
        """An actor on each node; those without one are lost. Raises NodesFailed."""
        body = {"nodes": list(loads), "timeout_s": ACTORS_S}
        actors = self._ask("start", body, 2 * ACTORS_S + ASK_S)["actors"]
        lost = {node: Lost(one["problem"]) for node, one in actors.items() if "problem" in one}
        if len(lost) == len(loads):
            raise self._all_lost(lost)
        return lost

    def _await_end(self, on_progress: Callable[[Progress], None] | None) -> None:
        """Ask how a load stands until it has ended. Raises NodesFailed when the program breaks."""
        while True:
            status = self._ask("status", {}, ASK_S)
            if status["broken"] is not None:
                raise NodesFailed(f"the program of the nodes broke: {status['broken']}")
            if status["ended"]:
                return
            if on_progress is not None and (progress := summed(status["nodes"].values())):
                on_progress(progress)
            time.sleep(POLL_S)

    def _end_early(self) -> None:
        """After Ctrl-C: order the end, and wait some seconds for it."""
        self._ask("call_off", {}, ASK_S)
        deadline = time.monotonic() + CALL_OFF_S
        while not self._ask("status", {}, ASK_S)["ended"] and time.monotonic() < deadline:
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
        usage = {
            node: built(TrialUsage, outcome["usage"], "usage")
            for node, outcome in outcomes.items()
            if outcome.get("usage")
        }
        began = {node: one["began_at_ns"] for node, one in outcomes.items() if "began_at_ns" in one}
        return NodesResult({**lost, **parts}, usage, skew_s, began)

    def _all_lost(self, lost: Mapping[str, Lost]) -> NodesFailed:
        first, *others = (f"{self._name_of(node)}: {one.reason}" for node, one in lost.items())
        return NodesFailed(f"no node could drive its load: {first}", tuple(others))

    def _name_of(self, node_id: str) -> str:
        node = next((node for node in self.nodes if node.node_id == node_id), None)
        return node_id[:12] if node is None else f"{node.hostname} ({node.ip}, {node_id[:12]})"

    def _failed(self, message: str, detail: Sequence[str] = ()) -> NodesFailed:
        return NodesFailed(message, super()._failed(message, detail).detail)


def reach(address: str) -> None:
    """Raises NodesFailed unless something listens at the address; `auto` is Ray's to find."""
    try:
        if address != "auto":
            reachable(address)
    except BadInput as error:
        raise NodesFailed(str(error).removeprefix("--address: ")) from None
