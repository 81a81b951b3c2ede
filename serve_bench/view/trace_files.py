"""Single traced requests as a file in the trace event format of Chrome, which Perfetto opens.

Rule: what is written is what the records keep of each launch: the slowest requests, and others
evenly; no request is made up. A hop is a span, and so is a call of another deployment, with its own
hops below.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from serve_bench import __version__
from serve_bench.core.result import Result, cell_slug


def trace_text(result: Result) -> str:
    """The content of the file: a process for each trial, a thread for each request and for each
    call that it made: calls overlap, and events of a thread may not. Empty: none was traced."""
    trials = [trial for trial in result.trials if trial.waterfall.get("requests")]
    dues = [request["due_unix_ns"] for of in trials for request in of.waterfall["requests"]]
    if not dues:
        return ""
    events: list[dict[str, Any]] = []
    for pid, trial in enumerate(trials, 1):
        name = f"{trial.variant}, {cell_slug(trial.cell)}, {trial.row.label}, launch {trial.launch}"
        events.append({"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}})
        tid = 0
        for request in sorted(trial.waterfall["requests"], key=lambda made: made["due_unix_ns"]):
            begin_ns = request["due_unix_ns"] - min(dues)
            for name, deployment, spans in _list_tracks(request):
                tid += 1
                place = {"pid": pid, "tid": tid}
                events.append({"name": "thread_name", "ph": "M", **place, "args": {"name": name}})
                about = {"ph": "X", "cat": deployment, "args": {"trace": request["trace"]}, **place}
                for hop, after_ns, ns in spans:
                    times = {"ts": (begin_ns + after_ns) / 1e3, "dur": ns / 1e3}  # us
                    events.append({"name": hop, **times, **about})
    about_run = {"tool": f"serve-bench {__version__}", "begin_unix_ns": min(dues)}
    made = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about_run}
    return json.dumps(made, ensure_ascii=False, separators=(",", ":")) + "\n"


def _list_tracks(fall: Mapping[str, Any], indent: str = "") -> Iterator[tuple[str, str, list[Any]]]:
    """The spans of a request, then those of each call below it, with their names."""
    whole = [] if indent else [["request", 0, fall["total_ns"]]]
    yield f"{indent}{fall['deployment']}", fall["deployment"], [*whole, *fall["spans"]]
    for call in fall["calls"]:
        yield from _list_tracks(call, f"{indent}  ")
