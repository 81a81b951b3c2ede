"""The CSV that `locust --csv` writes, as rows of a run.

Rule: a file is one launch. By what share a figure may be off within its file is `p50_error`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from serve_bench.core.facts import TrialSeconds
from serve_bench.core.load_result import Counts, Warmup
from serve_bench.core.result import Metric, Trial
from serve_bench.core.traffic import Row


def make_trial(label: str, sent: int, failed: int, throughput: float, **others: float) -> Trial:
    """A row of a file with its rate; `others`: times (ns), and shares as `p50_error`."""
    metrics = {name: Metric("ns", "lower", (float(value),)) for name, value in others.items()}
    metrics["throughput"] = Metric("requests/s", "higher", (float(throughput),))
    counts = Counts(sent, sent - failed, {"status": failed}, 0)
    known = "", "", 1.0, Warmup(0.0, True, 0), metrics, counts, TrialSeconds()
    return Trial(label, 1, "file", {}, Row(label, "", 1), *known)


def read_locust(lines: Iterable[Mapping[str, str]]) -> Iterator[Trial]:
    """The statistics, or the first and the last line of each row of their history, whose rates are
    means of several seconds. Raises LookupError, TypeError and ValueError."""
    rows = dict[str, tuple[Mapping[str, str], Mapping[str, str]]]()
    for line in lines:
        label = f"{line['Type']} {line['Name']}".strip()
        rows[label] = rows.get(label, (line,))[0], line
    for label, (first, last) in rows.items():
        total = "Total " if "Timestamp" in last else ""
        names = [f"{total}{of} Count" for of in ("Request", "Failure")]
        begun, lost, sent, failed = (int(line[name]) for line in (first, last) for name in names)
        if not sent:
            continue  # it has no times either
        rate = float(last["Requests/s"]) - float(last["Failures/s"])
        times_ms = {"p50": last["50%"], "p99": last["99%"]}
        if total:
            seconds = int(last["Timestamp"]) - int(first["Timestamp"])
            rate = (sent - begun - failed + lost) / max(1, seconds)
            times_ms = {"p50": last["Total Median Response Time"]}
        others = dict[str, float]()
        for name, ms in ((name, float(text)) for name, text in times_ms.items()):
            step_ms = 10.0 ** min(3, max(0, len(str(int(ms))) - 2))  # two digits from 100 ms on
            others |= {name: 1e6 * ms, f"{name}_error": step_ms / max(ms, 1.0)}
        yield make_trial(label, sent, failed, rate, **others)
