"""How nodes of a cluster are called, and which one a word of the command line means. Pure words.

Rule: a name tells a node from all others. Several may run on one machine and share its name and its
address, so either may not do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from serve_bench.core.errors import BadInput
from serve_bench.core.node_result import Node

LEAST_ID: Final = 8
"""How much of a node id is shown, at least."""


def full_name(node: Node, nodes: Iterable[Node]) -> str:
    """For a sentence: `node host3 (10.1.0.3)`, with the id where others share both."""
    alike = [one for one in nodes if (one.hostname, one.ip) == (node.hostname, node.ip)]
    more = f", {short_id(node, nodes)}" if len(alike) > 1 else ""
    return f"node {node.hostname} ({node.ip}{more})"


def file_name(node: Node, nodes: Sequence[Node]) -> str:
    """For the name of a file: its hostname, else its address, else the beginning of its id."""
    word = _first_own(node, nodes, (lambda one: one.hostname, lambda one: one.ip))
    return re.sub(r"[^A-Za-z0-9_.-]", "_", word)


def flag_name(node: Node, nodes: Sequence[Node]) -> str:
    """For `--node`: its address, else its hostname, else the beginning of its id."""
    return _first_own(node, nodes, (lambda one: one.ip, lambda one: one.hostname))


def short_id(node: Node, nodes: Iterable[Node]) -> str:
    """The beginning of a node id that no other begins with."""
    others = [one.node_id for one in nodes if one.node_id != node.node_id]
    size = LEAST_ID
    while any(one.startswith(node.node_id[:size]) for one in others):
        size += 1
    return node.node_id[:size]


def node_of(word: str, nodes: Sequence[Node]) -> Node:
    """The living node that `--node` means. BadInput when there is none, or more than one."""
    alive = [node for node in nodes if node.alive]
    found = [node for node in alive if word in (node.ip, node.hostname)]
    found = found or [node for node in alive if word and node.node_id.startswith(word)]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(short_id(node, nodes) for node in found)
        raise BadInput(f"--node: {len(found)} nodes are called {word}; take one of: {ids}")
    dead = [one for one in nodes if word in (one.ip, one.hostname) or one.node_id.startswith(word)]
    known = ", ".join(f"{flag_name(node, alive)} ({node.hostname})" for node in alive)
    what = f"node {word} is dead" if dead and word else f"no node {word!r}"
    raise BadInput(f"--node: {what}; there are: {known}")


def _first_own(node: Node, nodes: Sequence[Node], ways: Sequence[Callable[[Node], str]]) -> str:
    for way in ways:
        if [way(one) for one in nodes].count(way(node)) == 1:
            return way(node)
    return short_id(node, nodes)
