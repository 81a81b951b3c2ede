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
from serve_bench.core.result import Result, cell_slug


def trace_text(result: Result) -> str:
    """The content of the file: a process for each trial, a thread for each request and for each
    call that it made: calls overlap, and events of a thread may not. Empty: none was traced."""
    trials = [trial for trial in result.trials if trial.waterfall.get("requests")]
    if not trials:
        return ""
    first = min(_due_ns(request) for trial in trials for request in trial.waterfall["requests"])
    events: list[dict[str, Any]] = []
    for pid, trial in enumerate(trials, 1):
        cell = cell_slug(trial.cell)
        name = f"{trial.variant}, {cell}, {trial.row.label}, launch {trial.launch}"
        events.append(_name_place("process_name", pid, 0, name))
        threads = count(1)
        for request in sorted(trial.waterfall["requests"], key=_due_ns):
            begin_ns = _due_ns(request) - first
            for depth, deployment, spans in _list_tracks(request):
                tid = next(threads)
                events.append(_name_place("thread_name", pid, tid, f"{'  ' * depth}{deployment}"))
                about: dict[str, Any] = {"cat": deployment, "pid": pid, "tid": tid}
                about["args"] = {"trace": request["trace"]}
                for hop, after_ns, ns in spans:
                    times = {"ts": (begin_ns + after_ns) / 1e3, "dur": ns / 1e3}  # us
                    events.append({"name": hop, "ph": "X", **times, **about})
    made = {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"tool": f"serve-bench {__version__}", "begin_unix_ns": first},
    }
    return json.dumps(made, ensure_ascii=False, separators=(",", ":")) + "\n"


def _due_ns(request: Mapping[str, Any]) -> int:
    return int(request["due_unix_ns"])


def _name_place(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def _list_tracks(fall: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[int, str, list[Any]]]:
    """The spans of a request, then those of each call below it."""
    whole = [] if depth else [["request", 0, fall["total_ns"]]]
    yield depth, str(fall["deployment"]), [*whole, *fall["spans"]]
    for call in fall["calls"]:
        yield from _list_tracks(call, depth + 1)
