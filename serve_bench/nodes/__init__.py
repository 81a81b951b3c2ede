"""Load from every node of a Ray cluster: one load actor on a node, all measured together.

The parent (crew.py) imports no ray. It starts the program `python -m serve_bench.nodes`, which
joins the cluster as a driver, puts an actor (actors.py) on each node and passes their answers on.
The program and the actors may run where only Ray is installed, so the names of the parent's side
are loaded on first use. The share of a node is computed in core/nodes.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from serve_bench.nodes.crew import NodeCrew as NodeCrew
    from serve_bench.nodes.crew import NodesFailed as NodesFailed
    from serve_bench.nodes.crew import NodesInterrupted as NodesInterrupted
    from serve_bench.nodes.crew import NodesResult as NodesResult

__all__ = ["NodeCrew", "NodesFailed", "NodesInterrupted", "NodesResult"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from serve_bench.nodes import crew

    return getattr(crew, name)
