"""`serve-bench profile --address`: the Serve processes of every node of a Ray cluster.

An actor on each node lists, dumps and records them. Rule: a node that cannot be looked at is one
line, and the rest goes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from serve_bench.core.errors import RunFailed
    from serve_bench.core.nodes import Node
    from serve_bench.nodes.crew import WatchCrew
    from serve_bench.observing.processes import ServeProcess
    from serve_bench.runner.recording import Wish


@dataclass(frozen=True)
class Aim:
    """A choice of processes on nodes. `node` None: of all nodes."""

    address: str
    node: str | None = None
    pid: int | None = None
    target: str | None = None
    app: str | None = None
    deployment: str | None = None


def check(aim: Aim, *, listed: bool = False) -> None:
    """Raises BadInput on what cannot be done on nodes. Starts nothing."""
    from serve_bench.core.errors import BadInput
    from serve_bench.observing.processes import TARGETS
    from serve_bench.runner.recording import one_of
    from serve_bench.serving.launch_spec import own_ray_version, reachable

    if not listed:
        if aim.pid is not None and aim.node is None:
            raise BadInput("--pid: each node counts its own: add --node (--list shows both)")
        if aim.target is not None:
            one_of(aim.target, tuple(TARGETS), "--target")
        if aim.target == "haproxy":
            raise BadInput(
                "--target haproxy: perf has to run on the node itself: use "
                "serve-bench profile --target haproxy there, without --address"
            )
    own_ray_version()
    reachable(aim.address)


def list_nodes(address: str, only: str | None) -> int:
    """Prints the Serve processes of each node, or of one. The exit code."""
    from serve_bench.cli.profile_run import HEAD, print_columns, print_failures, row_of
    from serve_bench.core.nodes import flag_name

    aim = Aim(address, only)
    check(aim, listed=True)
    with _watching(aim) as (crew, nodes, failed, _):
        by_node, more = crew.processes(nodes)
        alive = [node for node in crew.nodes if node.alive]
        rows: list[tuple[str, ...]] = [HEAD]
        for node in nodes:
            if node.node_id not in by_node:
                continue
            none = "" if by_node[node.node_id] else ": no Serve process"
            rows.append((f"{crew.named(node)}{', head' if node.is_head else ''}{none}",))
            at = f"--address {aim.address} --node {flag_name(node, alive)}"
            for one in by_node[node.node_id]:
                haproxy = one.process.role == "haproxy"
                how = "there: --target haproxy (C: perf)" if haproxy else f"--pid {one.process.pid}"
                rows.append(row_of(one, how if haproxy else f"{at} {how}"))
        print_failures((*failed, *more), partial=bool(by_node))
        if any(by_node.values()):
            print_columns(rows)
        else:
            typer.echo(f"no Serve process runs on the nodes of {aim.address}")
    return 0


def dump_on_nodes(aim: Aim, native: bool) -> int:
    """Prints the stacks of each process now. The exit code."""
    from serve_bench.cli.profile_run import print_failures

    with _watching(aim) as (crew, nodes, failed, _):
        processes, more = _processes(crew, nodes, aim, failed)
        pids: dict[Node, list[int]] = {}
        for node, process in processes:
            pids.setdefault(node, []).append(process.pid)
        roles = {(node, process.pid): process.role for node, process in processes}
        dumped, wrong = crew.dump(pids, native=native)
        print_failures((*more, *wrong), partial=bool(dumped))
        for one in dumped:
            if len(dumped) > 1:
                typer.echo(f"== {roles[one.node, one.pid]} {one.pid}, {crew.named(one.node)}")
            typer.echo(one.text, nl=False)
    return 0


def record_on_nodes(aim: Aim, wish: Wish) -> int:
    """Records with py-spy on every node, draws and prints the profiles. The exit code."""
    from dataclasses import replace

    from serve_bench.cli.profile_run import RecordProgress, print_profiles
    from serve_bench.runner.recording import record_on_nodes as record

    with _watching(aim) as (crew, nodes, failed, folder):
        processes, more = _processes(crew, nodes, aim, failed)
        count = len({node for node, _ in processes})
        where = f" on {count} node{'' if count == 1 else 's'}"
        with RecordProgress(len(processes), wish.duration_s, where) as progress:
            profiles = record(crew, processes, wish, progress.at, folder)
    return print_profiles(replace(profiles, failed=(*more, *profiles.failed)), wish)


# -------------------------------------------------------------------------------- choosing


@contextlib.contextmanager
def _watching(
    aim: Aim,
) -> Iterator[tuple[WatchCrew, tuple[Node, ...], tuple[RunFailed, ...], Path]]:
    """The crew, the nodes that can be looked at, why others cannot, and a folder that is removed
    after the run."""
    from serve_bench.cli.profile_run import print_failures
    from serve_bench.cli.sitting import run_mark, signals
    from serve_bench.core.errors import BadInput
    from serve_bench.core.nodes import node_of
    from serve_bench.nodes import NodesFailed
    from serve_bench.nodes.crew import WatchCrew
    from serve_bench.serving.strays import run_directory

    with signals(), run_mark() as run_id:
        folder = run_directory(run_id)
        with WatchCrew(aim.address, run_id, folder / "nodes.log") as crew:
            try:
                crew.start()
            except NodesFailed as error:
                raise BadInput(f"--address: {error}") from None
            wanted = tuple(node for node in crew.nodes if node.alive)
            if aim.node is not None:
                wanted = (node_of(aim.node, crew.nodes),)
            nodes, failed = crew.watch(wanted)
            if not nodes:
                print_failures(failed, partial=False)
            yield crew, nodes, failed, folder


def _processes(
    crew: WatchCrew, nodes: Sequence[Node], aim: Aim, failed: tuple[RunFailed, ...]
) -> tuple[list[tuple[Node, ServeProcess]], tuple[RunFailed, ...]]:
    """The chosen processes, and failures. Raises BadInput where there is none."""
    from serve_bench.cli.profile_run import no_process, print_failures
    from serve_bench.observing.processes import ServeProcess, chosen

    by_node, more = crew.processes(nodes)
    failed = (*failed, *more)
    processes: list[tuple[Node, ServeProcess]] = []
    for node in nodes:
        here = [one.process for one in by_node.get(node.node_id, ())]
        if aim.pid is not None:
            known = [one for one in here if one.pid == aim.pid]
            meant = known or [ServeProcess(aim.pid, "process", "", "")]
        else:
            assert aim.target is not None, "a pid or a target"
            meant = chosen(here, aim.target, aim.app, aim.deployment)
        processes += [(node, one) for one in meant]
    if not processes:
        print_failures(failed, partial=bool(by_node))
        assert aim.target is not None, "a process of a pid is not looked for"
        where = crew.named(nodes[0]) if aim.node is not None else f"any node of {aim.address}"
        raise no_process(aim.target, aim.app, aim.deployment, where)
    return processes, failed
