"""Single traced requests as a file in the trace event format of Chrome, which Perfetto opens.

Rule: what is written is what the records keep of each launch: the slowest requests, and others
evenly; no request is made up. A hop is a span, and so is a call of another deployment, with its own
hops below.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from serve_bench import __version__
from serve_bench.core.result import Result, Trial, cell_slug

Traced = tuple[Trial, list[Mapping[str, Any]]]


def traced_trials(result: Result) -> list[Traced]:
    """The trials that have single requests, with these."""
    every = [(one, list(one.waterfall.get("requests") or ())) for one in result.trials]
    return [(one, requests) for one, requests in every if requests]


def _name(trial: Trial) -> str:
    """`optimized, 100 connections, launch 1`."""
    return f"{trial.variant}, {cell_slug(trial.cell)}, {trial.row.label}, launch {trial.launch}"


def trace_text(result: Result) -> str:
    """The content of the file: a process for each trial, a thread for each request and for each
    call that it made: calls overlap, and events of a thread may not."""
    trials = traced_trials(result)
    first = min((int(one["due_unix_ns"]) for _, every in trials for one in every), default=0)
    events: list[dict[str, Any]] = []
    for pid, (trial, requests) in enumerate(trials, 1):
        events.append(_named("process_name", pid, 0, _name(trial)))
        threads = count(1)
        for request in sorted(requests, key=lambda one: int(one["due_unix_ns"])):
            at = int(request["due_unix_ns"]) - first
            for depth, name, spans in _tracks(request):
                tid = next(threads)
                events.append(_named("thread_name", pid, tid, f"{'  ' * depth}{name}"))
                about = {"cat": name, "pid": pid, "tid": tid, "args": {"trace": request["trace"]}}
                events += [
                    {"name": hop, "ph": "X", "ts": (at + begin) / 1e3, "dur": ns / 1e3, **about}
                    for hop, begin, ns in spans
                ]
    made = {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"tool": f"serve-bench {__version__}", "begin_unix_ns": first},
    }
    return json.dumps(made, ensure_ascii=False, separators=(",", ":")) + "\n"


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def _tracks(fall: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[int, str, list[Any]]]:
    """The spans of a request, then those of each call below it."""
    whole = [] if depth else [["request", 0, fall["total_ns"]]]
    yield depth, str(fall["deployment"]), [*whole, *fall["spans"]]
    for one in fall["calls"]:
        yield from _tracks(one, depth + 1)
