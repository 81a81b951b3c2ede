"""What all worlds have in common: how a call that failed, or a process that ended, is named."""

from __future__ import annotations

import importlib.util
import re
import select
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

PARENT = 0
"""Descriptor of the parent's commands; it sends none while one is under way, so it is readable
only when the parent has gone."""

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_RAISED = re.compile(r"[\w.]*(Error|Exception|Timeout)\b.*: .")


class Broken(Exception):
    """A world cannot go on: one line that names the process."""


class World(Protocol):
    """One agent and its observers, up and connected."""

    def people(self) -> dict[str, Any]:
        """`agent`: its pid; `observers`: theirs, in their order."""

    def episode(self, steps: int) -> dict[str, Any]:
        """All observers at once, `steps` calls each. Raises Broken."""

    def stop(self) -> None:
        """Ends all processes of the world."""


def name_of(rank: int) -> str:
    """Rank 0 is the agent, the others are observers."""
    return "the agent" if rank == 0 else f"observer {rank}"


def ended(rank: int, pid: int | None, how: str) -> Broken:
    """A process that should be there is not."""
    whose = "" if pid is None else f" (pid {pid})"
    return Broken(f"{name_of(rank)}{whose} {how}")


def stopped(pids: Mapping[int, int]) -> Broken | None:
    """The first process, by rank, that a signal has stopped: the others waited for it. None where
    all run, or where the system does not tell."""
    for rank in sorted(pids):
        try:
            with open(f"/proc/{pids[rank]}/stat", encoding="ascii", errors="replace") as file:
                state = file.read().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state == "T":
            return ended(rank, pids[rank], "is stopped by a signal; others waited for it")
    return None


def figures(agent_ns: Sequence[int], reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """An episode as it goes to the parent; `reports` by the observers in their order."""
    return {
        "agent_ns": list(agent_ns),
        "observer_ns": [one["latency_ns"] for one in reports],
        "began_ns": min(one["began_ns"] for one in reports),
        "ended_ns": max(one["ended_ns"] for one in reports),
    }


def one_line(error: BaseException) -> str:
    """The error itself. One of a remote call holds a whole traceback: its last error counts."""
    lines = [line.strip() for line in _ANSI.sub("", str(error)).splitlines()]
    raised = [line for line in lines if _RAISED.match(line)]
    if len(lines) > 1 and raised:
        return raised[-1]
    text = " ".join(" ".join(lines).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def end_if_orphan() -> None:
    """Ends the launch if the parent has gone."""
    if select.select([PARENT], [], [], 0)[0]:
        end_launch()


def end_launch() -> None:
    """Goes on as the program of the cluster that ends a launch: the parent has gone, and its warden
    may have. It does not return."""
    place = Path(__file__).resolve().parents[2] / "cluster" / "ending.py"
    spec = importlib.util.spec_from_file_location("ending", place)
    assert spec is not None and spec.loader is not None
    ending = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(ending)
    ending.become()
