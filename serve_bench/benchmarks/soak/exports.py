"""A soak as JSON, for programs. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from serve_bench.analysis.drift import LevelDrift
from serve_bench.analysis.statistics import summarize
from serve_bench.benchmarks.parts.csv import json_of
from serve_bench.benchmarks.parts.slo import slo_json
from serve_bench.benchmarks.soak.summary import ProcessDrift, VariantSoak, sentences_of, soak_of
from serve_bench.core.document import ReportOptions
from serve_bench.core.result import Result


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
                "name": of.name,
                "requests": of.answered,
                "req_per_s": of.rate,
                "free_mb": of.free_mb,
                "load": [asdict(part) for part in of.parts],
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
    return {
        "process": one.name,
        "pids": [launch.pid for launch in one.launches],
        "launches": len(one.launches),
        "million_requests": one.requests,
        "minutes": one.minutes,
        "verdict": one.word,
        "leaks": one.leaks,
        "more_minutes": one.more_minutes,
        "mb_per_hour": None if drift is None else of.mb_per_hour(drift),
        "hours_left": None if drift is None else of.hours_left(drift),
        "warm_up_mb": one.warmed,
        **{
            level: {
                "begin": one.figure(level, 0),
                "end": one.figure(level, -1),
                "per_million": _drift(known),
            }
            for level, known in (
                ("pss_mb", drift),
                ("threads", one.threads),
                ("descriptors", one.descriptors),
            )
        },
    }


def _drift(drift: LevelDrift | None) -> dict[str, Any] | None:
    if drift is None:
        return None
    return {
        "slope": drift.slope,
        "low": drift.low,
        "high": drift.high,
        "autocorrelation": drift.rho,
        "df": drift.df,
        "slows": drift.slows,
    }
