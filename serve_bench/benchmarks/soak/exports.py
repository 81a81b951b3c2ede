"""A soak as JSON, for programs. Pure."""

from __future__ import annotations

from typing import Any

from serve_bench.analysis.statistics import summarize
from serve_bench.benchmarks.soak.summary import ProcessDrift, VariantSoak, sentences_of, soak_of
from serve_bench.core.result import Result
from serve_bench.view.csv import json_of, pick
from serve_bench.view.document import ReportOptions
from serve_bench.view.slo import slo_json


def json_text(result: Result, options: ReportOptions) -> str:
    """The processes and the load as one JSON object, indented; latencies in ns, memory in MB."""
    soak = soak_of(result)
    lines = {one.variant: one for one in summarize(soak.rows)}
    whole = {
        "run": result.run.id,
        "records": options.where,
        "findings": list(sentences_of(soak)),
        "threshold_mb_per_million": soak.spec.leak,
        "block_s": soak.spec.block_s,
        "variants": [
            {
                **pick(of, "name", "answered", "rate", "free_mb", "parts"),
                **(slo_json(result.run, lines[of.name]) if of.name in lines else {}),
                "processes": [_process(of, one) for one in of.processes],
            }
            for of in soak.variants
        ],
        "failures": [one.message for one in result.failures],
        "host": dict(result.run.host),
    }
    return json_of(whole)


def _process(of: VariantSoak, one: ProcessDrift) -> dict[str, Any]:
    drift = one.memory
    levels = (("pss_mb", drift), ("threads", one.threads), ("descriptors", one.descriptors))
    return {
        **pick(one, "name", "minutes", "word", "leaks", "more_minutes", "warmed"),
        "pids": [launch.pid for launch in one.launches],
        "million_requests": one.requests,
        "launches": len(one.launches),
        "mb_per_hour": None if drift is None else of.mb_per_hour(drift),
        "hours_left": None if drift is None else of.hours_left(drift),
        **{
            level: {
                "begin": one.figure(level, 0),
                "end": one.figure(level, -1),
                "per_million": known,
            }
            for level, known in levels
        },
    }
