"""Checks that this host has what `serve-bench scale` needs: Ray, memory, the cluster's address.

Rule: what can be checked before anything is started is, and what is missing is refused in one line
with a way out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from serve_bench.benchmarks.scale.spec import ScaleSpec
from serve_bench.core.errors import BadInput, RunFailed
from serve_bench.core.figures import counted
from serve_bench.observing.host import free_memory_bytes
from serve_bench.runner.model_needs import BASE_BYTES as BASE_BYTES
from serve_bench.serving.launch_spec import check_interpreter, own_ray_version, reachable

REPLICA_BYTES: Final = 100_000_000
"""Proportional memory of a replica that does nothing: 86 to 94 MB, with 1 to 32 of them."""

RAYLET_BYTES: Final = 250_000_000
"""A further node on the same machine: its raylet, agents and proxy."""


def check_needs(suite: ScaleSpec) -> ScaleSpec:
    """Return the suite with its address resolved, after all checks. Raises BadInput."""
    if suite.address is not None:
        own_ray_version()
        return replace(suite, address=reachable(suite.address))
    for variant in suite.variants:
        check_interpreter(variant)
        if variant.python is not None:
            raise BadInput(
                f"variants.{variant.name}: python: the load of scale comes from Ray's own nodes: "
                "it takes the Ray of this interpreter alone"
            )
    lacking = _lacking(suite, free_memory_bytes(), "free here:")
    if lacking is not None:
        raise BadInput(lacking)
    return suite


def needed_bytes(suite: ScaleSpec, replicas: int) -> int:
    """Estimate the memory of `replicas` of each deployment, and of the cluster if it is our own."""
    taken = suite.processes(replicas) * REPLICA_BYTES
    if suite.address is not None:
        return taken
    return taken + BASE_BYTES + (suite.nodes - 1) * RAYLET_BYTES


def check_cluster(suite: ScaleSpec, nodes: Sequence[Mapping[str, Any]]) -> None:
    """Raise RunFailed unless the replicas fit into the memory that the nodes give out."""
    sizes = [int(node["memory_bytes"]) for node in nodes if node.get("memory_bytes")]
    if len(sizes) == len(nodes):
        where = f"memory that the cluster gives out ({counted(len(nodes), 'node')}):"
        lacking = _lacking(suite, sum(sizes), where)
        if lacking is not None:
            raise RunFailed(lacking)


def _lacking(suite: ScaleSpec, free: int, where: str) -> str | None:
    """Return what does not fit, and what does; None where all fits."""
    most = max(suite.replicas)
    if needed_bytes(suite, most) <= free:
        return None
    count, needed = suite.processes(most), needed_bytes(suite, most)
    flag = f"--{suite.size_option}"
    fit = _largest(suite, free)
    way = f"{flag} {fit} fits" if fit else "not even the smallest fits"
    return (
        f"{flag}: memory: {count:,} replicas in all take about {needed / 1e9:.1f} GB, "
        f"{where} {free / 1e9:.1f} GB; {way}"
    )


def _largest(suite: ScaleSpec, free: int) -> int:
    """Return the largest number of replicas, or nodes of a graph, that fits; or 0."""

    def needs(number: int) -> int:
        if suite.size_option == "replicas":
            return needed_bytes(suite, number)
        size: dict[str, Any] = {suite.size_option: number}
        return needed_bytes(replace(suite, **size), suite.replicas[0])

    return max(0, 1 + (free - needs(1)) // (needs(2) - needs(1)))
