"""The parent's side: starts the program of the nodes, orders loads.

Rule: nothing here imports ray, and nothing here waits without an end. The program ends with this
process (stdin), and with it Ray ends the actors, and the load workers with those.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import structs

from serve_bench.core.errors import BadInput
from serve_bench.core.load_result import LoadResult, Progress
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.nodes import Node, NodePart, node_fact
from serve_bench.core.own_module import finding_ours, own_module
from serve_bench.core.schema import built, plain
from serve_bench.load.driver import OnProgress
from serve_bench.load.failures import LoadError, LoadInterrupted
from serve_bench.load.merge import combine
from serve_bench.serving.child import Child
from serve_bench.serving.launch_spec import reachable
from serve_bench.serving.server import ChildDriver
from serve_bench.serving.strays import marks

JOIN_S: Final = 18.0
"""A Ray that is there is joined in 2 s; one that only listens makes `ray.init` try for minutes."""

ASK_S: Final = 20.0
"""The program of the nodes says four times a second how a load stands."""


class NodesFailed(LoadError):
    """The nodes of a cluster cannot drive a load: one line."""

    def __init__(self, reason: str) -> None:
        super().__init__("worker", "the nodes", 0, reason)
        self.args = (reason,)


class NodeCrew(ChildDriver):
    """Load actors on the nodes of the Ray cluster at `address`, from `start` to `close`.

    `address`: HOST:PORT of the cluster, or `auto`. `env`: in place of this process's environment
    (tokens, say). `python`: an interpreter with the Ray of the cluster. `log` takes Ray's chatter.
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
        self._env = dict(os.environ if env is None else env)
        self._python = python or sys.executable

    def start(self) -> None:
        """Join the cluster and list its nodes. Raises NodesFailed within 25 s."""
        try:
            if self.address != "auto":  # that is Ray's to find
                reachable(self.address)
        except BadInput as error:
            raise NodesFailed(str(error).removeprefix("--address: ")) from None
        self._child = Child(
            [self._python, "-u", *own_module("nodes")],
            log=self.log,
            cwd=Path("/"),  # Ray has its workers look for modules in the current folder too
            env=finding_ours({**self._env, **self._marks}),
            name=f"the program of the nodes of {self.address}",
        )
        try:
            self.look()
        except BaseException:  # Ctrl-C too: the program must not stay
            self.close()
            raise

    def look(self) -> tuple[Node, ...]:
        """List the nodes as they are now, and keep them in `nodes`. Raises NodesFailed."""
        answer = self._ask("join", {"address": self.address}, JOIN_S)
        self.nodes = built(tuple[Node, ...], answer["nodes"], "nodes")
        return self.nodes

    def drive(
        self,
        loads: Mapping[str, Load],
        timing: Timing,
        *,
        on_progress: OnProgress | None = None,
        sample: bool = False,
    ) -> LoadResult:
        """Drive a load from each of these nodes (by node id), all measured together.

        The result is that of all together, with the share of each in its `nodes`. All warm up until
        each is steady or its warm-up's maximum is over. `on_progress` gets the sum of all nodes
        some times a second. `sample`: also what the Serve processes of each node used. A node that
        dies or falls silent is lost: its share says why. Raises NodesFailed when no node is left or
        no target can be reached, LoadInterrupted with the result so far on Ctrl-C while measuring,
        and KeyboardInterrupt on one before.
        """
        heard = time.monotonic()

        def note(text: str) -> None:
            nonlocal heard
            heard = time.monotonic()
            progress = msgspec.json.decode(text, type=Progress | None)
            if progress is not None and on_progress is not None:
                on_progress(progress)

        def is_silent() -> str | None:
            silent = time.monotonic() - heard > ASK_S
            return f"the program of the nodes said nothing for {ASK_S:.0f} s" if silent else None

        body = plain({"load": self._asked, "loads": loads, "timing": timing})
        body |= {"mark": self._marks, "sample": sample}
        try:
            result = self._combine(loads, self._ask("drive", body, math.inf, note, is_silent))
        except KeyboardInterrupt as pressed:
            self._asked -= 1  # the answer to the load itself serves, also one that came just before
            answer = self._ask("call_off", {"load": body["load"]}, 2 * ASK_S)
            result = self._combine(loads, answer)
            if isinstance(result, LoadResult):
                raise LoadInterrupted(result) from pressed
            raise
        if isinstance(result, NodesFailed):
            raise result
        return result

    def close(self) -> None:
        """End the program, and with it Ray ends the actors."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def _failed(self, message: str, detail: Sequence[str] = ()) -> NodesFailed:
        return NodesFailed(message)

    def _combine(
        self, loads: Mapping[str, Load], answer: Mapping[str, Any]
    ) -> LoadResult | NodesFailed:
        """Combine the results of all nodes, or return why none has one. Raises NodesFailed."""
        parts = built(dict[str, NodePart], answer["parts"], "parts")
        of_nodes = [(node, parts[node.node_id]) for node in self.nodes if node.node_id in parts]
        for node, part in of_nodes:
            if part.broken:  # our code, not the load
                raise NodesFailed(f"the load on node {node.name} broke: {part.reason}")
        if not of_nodes:
            return NodesFailed("called off before it measured")
        results = [part.result for _, part in of_nodes if part.result is not None]
        if not results:
            node, part = next((pair for pair in of_nodes if not pair[1].refused), of_nodes[0])
            if part.refused:  # as all are
                return NodesFailed(part.reason)
            return NodesFailed(f"no node could drive its load: {node.name}: {part.reason}")
        facts = tuple(node_fact(node, loads[node.node_id], part) for node, part in of_nodes)
        whole = combine(next(iter(loads.values())), results)
        return structs.replace(whole, nodes=facts, skew_s=answer["skew_s"])
