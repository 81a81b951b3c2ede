"""What all nodes of a load give back: progress while it runs, each one's part, the sum of all.

Rule: only reads what the program tells and adds up; nothing is asked for here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from serve_bench.core.load_result import LoadResult, Phase, Progress
from serve_bench.core.load_spec import Load
from serve_bench.core.node_result import Lost, Node, node_fact
from serve_bench.core.result import JsonObject
from serve_bench.load import LoadError
from serve_bench.load.combine import combine
from serve_bench.load.external import ExternalResult

Part: TypeAlias = LoadResult | ExternalResult | Lost


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
        """The living nodes' results as one; None where none is ours (wrk), or none is left.

        Raises BrokenAccount when the sum does not balance.
        """
        ours = [part for part in self.parts.values() if isinstance(part, LoadResult)]
        return combine(load, ours) if ours else None

    def node_facts(self, nodes: Iterable[Node], loads: Mapping[str, Load]) -> list[dict[str, Any]]:
        """For `Trial.client["nodes"]`: one dict for each of `nodes` that had a load."""
        return [
            node_fact(
                node, loads[node.node_id], self.parts[node.node_id], self.usage.get(node.node_id)
            )
            for node in nodes
            if node.node_id in self.parts
        ]


def part_of(outcome: Mapping[str, Any]) -> Part:
    """What came of a node, from what the program tells of it."""
    kind = outcome["kind"]
    if kind == "load":
        return LoadResult.from_json(outcome["result"])
    if kind == "external":
        return ExternalResult.from_json(outcome["result"])
    if kind == "lost":
        return Lost(outcome["reason"], outcome["completed"], outcome["failed"], outcome["age_s"])
    if kind == "load_error":
        error = LoadError(
            outcome["error_class"], outcome["host"], outcome["port"], outcome["reason"]
        )
        return Lost(str(error))
    return Lost(outcome.get("reason", "called off before it measured"))


_ORDER: Final[Sequence[Phase]] = ("connect", "warmup", "measure", "drain")


def summed(states: Iterable[Mapping[str, Any]]) -> Progress | None:
    """The nodes that work, as one: rates and counts added, the phase of the one that is least far.

    Percentiles of several nodes cannot be had from theirs, so there are none. None before any node
    has told of itself.
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
