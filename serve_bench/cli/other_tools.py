"""Files of other tools, read like stored runs: Ray's perf_metrics, locust, pytest-benchmark."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from serve_bench.analysis.ratios import quantile
from serve_bench.benchmarks.registry import read_rows
from serve_bench.core.errors import BadInput
from serve_bench.core.facts import HostFacts, TrialSeconds
from serve_bench.core.load_result import Counts, Warmup
from serve_bench.core.result import Metric, Result, Run, Trial
from serve_bench.core.schema import built, plain
from serve_bench.core.traffic import Row
from serve_bench.store.locust import read_locust

_TAKES: Final = "a run, Ray's perf_metrics, CSV of locust or JSON of pytest-benchmark"
_FAULTS: Final = (OSError, csv.Error, ArithmeticError, LookupError, TypeError, ValueError)


def read_stored(path: Path) -> Result:
    """Read a stored run, or a file of another tool as a run without a time. Raises BadInput."""
    if path.suffix not in (".csv", ".json") or not path.is_file():
        return read_rows(path)
    place, host, trials = path.resolve(), HostFacts(), list[Trial]()
    tool = "locust" if path.suffix == ".csv" else "perf_metrics of Ray"
    with suppress(*_FAULTS, RecursionError):  # their words help nobody
        text, name = path.read_text(encoding="utf-8-sig"), f"{place.parent.name}/{place.name}"
        if path.suffix == ".csv":
            trials += [_make_trial(*row) for row in read_locust(csv.DictReader(text.splitlines()))]
        elif "benchmarks" in (content := json.loads(text)):
            tool, about = "pytest-benchmark", content["machine_info"]
            host = HostFacts(about["node"], about["cpu"]["brand_raw"], about["cpu"]["count"])
            trials += map(_read_rounds, content["benchmarks"])
        else:
            trials += _read_perf_metrics(content)
        found = Result(Run(name, (str(place),), tool, "", "", host=host), trials=tuple(trials))
        if trials:
            return built(Result, plain(found), "file")
    raise BadInput(f"{path}: holds no rows of {tool}; it takes {_TAKES}")


def _make_trial(name: str, sent: int, failed: int, rate: float, more: Mapping[str, float]) -> Trial:
    """Make the trial of a row with its rate; `more`: times (ns), and shares as `p50_error`."""
    metrics = {figure: Metric("ns", "lower", (float(value),)) for figure, value in more.items()}
    metrics["throughput"] = Metric("requests/s", "higher", (float(rate),))
    counts = Counts(sent, sent - failed, {"status": failed}, 0)
    rest = "", "", 1.0, Warmup(0.0, True, 0), metrics, counts, TrialSeconds()
    return Trial(name, 1, "file", {}, Row(name, "", 1), *rest)


def _read_perf_metrics(content: Mapping[str, Any]) -> Iterator[Trial]:
    for metric in content["perf_metrics"]:
        label, value, kind = (metric[f"perf_metric_{part}"] for part in ("name", "value", "type"))
        if kind == "THROUGHPUT" and "gigabytes" not in label:  # which is no rate of calls
            yield _make_trial(label, 1, 0, value, {})


def _read_rounds(benchmark: Mapping[str, Any]) -> Trial:
    """Read a row whose rounds count as requests; the error of the mean is that of 95 %."""
    parts = (float(benchmark["stats"][name]) for name in ("rounds", "mean", "stddev", "median"))
    rounds, mean, std, median = parts
    others = {"p50": 1e9 * median}
    if rounds > 1:  # one says nothing of its spread
        others["throughput_error"] = quantile(rounds - 1, 0.975) * std / mean / math.sqrt(rounds)
    return _make_trial(benchmark["fullname"], int(rounds), 0, 1 / mean, others)
