"""Single traced requests as files that other tools read: the trace event format of Chrome, which
Perfetto opens, and OTLP JSON.

Rule: what is written is what the records keep of each launch: the slowest requests, and others
evenly; no request is made up. A hop is a span, and so is a call of another deployment, with its own
hops below.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Final

from serve_bench import __version__
from serve_bench.core.result import Result, Trial, cell_slug

OTLP: Final = ".otlp.json"
"""How the name of a file in the form of OTLP ends."""

OWN_IDS: Final = 1 << 63
"""Ids of spans that the tool makes are above it; the client's own, which Serve's spans have as
parent, are below."""

CLIENT, INTERNAL = 3, 1  # kinds of spans in OTLP

Traced = tuple[Trial, list[Mapping[str, Any]]]


def traced_trials(result: Result) -> list[Traced]:
    """The trials that have single requests, with these."""
    every = [(one, list(one.waterfall.get("requests") or ())) for one in result.trials]
    return [(one, requests) for one, requests in every if requests]


def trace_text(result: Result, name: str) -> str:
    """The content of a file of this name."""
    trials = traced_trials(result)
    made = _otlp(result, trials) if name.endswith(OTLP) else _chrome(trials)
    return json.dumps(made, ensure_ascii=False, separators=(",", ":")) + "\n"


def _name(trial: Trial) -> str:
    """`optimized, 100 connections, launch 1`."""
    return f"{trial.variant}, {cell_slug(trial.cell)}, {trial.row.label}, launch {trial.launch}"


# --------------------------------------------------------------------------------------- Chrome


def _chrome(trials: list[Traced]) -> dict[str, Any]:
    """A process for each trial, a thread for each request and for each call that it made: calls
    overlap, and events of a thread may not."""
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
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"tool": f"serve-bench {__version__}", "begin_unix_ns": first},
    }


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def _tracks(fall: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[int, str, list[Any]]]:
    """The spans of a request, then those of each call below it."""
    whole = [] if depth else [["request", 0, fall["total_ns"]]]
    yield depth, str(fall["deployment"]), [*whole, *fall["spans"]]
    for one in fall["calls"]:
        yield from _tracks(one, depth + 1)


# ----------------------------------------------------------------------------------------- OTLP


def _otlp(result: Result, trials: list[Traced]) -> dict[str, Any]:
    """A resource for each trial; a span for each request, its hops and calls below."""
    ids = count(OWN_IDS)
    host = str(result.run.host.get("id", ""))
    return {
        "resourceSpans": [
            {
                "resource": {
                    "attributes": [
                        _attribute("service.name", "serve-bench"),
                        _attribute("host.id", host),
                        _attribute("serve_bench.row", _name(trial)),
                    ]
                },
                "scopeSpans": [
                    {
                        "scope": {"name": "serve-bench", "version": __version__},
                        "spans": [span for one in requests for span in _spans(one, ids)],
                    }
                ],
            }
            for trial, requests in trials
        ]
    }


def _attribute(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


def _spans(request: Mapping[str, Any], ids: Iterator[int]) -> Iterator[dict[str, Any]]:
    trace, due = str(request["trace"]), int(request["due_unix_ns"])

    def span(name: str, begin: int, ns: int, parent: str, deployment: str) -> dict[str, Any]:
        return {
            "traceId": trace,
            "spanId": f"{next(ids):016x}" if parent else trace[16:],
            "parentSpanId": parent,
            "name": name,
            "kind": INTERNAL if parent else CLIENT,
            "startTimeUnixNano": str(due + begin),
            "endTimeUnixNano": str(due + begin + ns),
            "attributes": [_attribute("ray.serve.deployment", deployment)],
        }

    def below(fall: Mapping[str, Any], parent: str) -> Iterator[dict[str, Any]]:
        name = str(fall["deployment"])
        for hop, begin, ns in fall["spans"]:
            yield span(hop, begin, ns, parent, name)
        for one in fall["calls"]:
            begin = min(start for _, start, _ in one["spans"])
            call = span(str(one["deployment"]), begin, one["total_ns"], parent, name)
            yield call
            yield from below(one, call["spanId"])

    root = span("request", 0, int(request["total_ns"]), "", str(request["deployment"]))
    yield root
    yield from below(request, root["spanId"])
