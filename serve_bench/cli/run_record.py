"""The first record of a run: what was asked for, by which tool, on which host.

Rule: the values of headers are not kept, since a token may be one of them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from serve_bench import __version__
from serve_bench.clock import now_iso
from serve_bench.host import fingerprint, git_commit
from serve_bench.result import PlannedTrial, Run
from serve_bench.store import RunFolder

HEADER_FLAGS: Final = ("--header", "-H")
NOT_KEPT: Final = "(not kept)"


def run_record(
    folder: RunFolder,
    command: str,
    plan: tuple[PlannedTrial, ...] = (),
    suite: Mapping[str, Any] | None = None,
) -> Run:
    """The record of a run that begins now."""
    return Run(
        id=folder.path.name,
        argv=recorded(sys.argv[1:]),
        command=command,
        started_at=now_iso(),
        tool_version=__version__,
        git_commit=git_commit(),
        suite=suite or {},
        plan=plan,
        host=fingerprint(),
    )


def recorded(argv: Sequence[str]) -> tuple[str, ...]:
    """The arguments as they may be kept: of a header its name alone."""
    out: list[str] = []
    for at, text in enumerate(argv):
        flag, equals, value = text.partition("=")
        if at and argv[at - 1] in HEADER_FLAGS:
            out.append(_named(text))
        elif flag in HEADER_FLAGS and equals:
            out.append(f"{flag}={_named(value)}")
        elif text.startswith("-H") and len(text) > 2:
            out.append(f"-H{_named(text[2:])}")
        else:
            out.append(text)
    return tuple(out)


def _named(header: str) -> str:
    name, colon, _ = header.partition(":")
    return f"{name}{colon} {NOT_KEPT}" if colon else NOT_KEPT
