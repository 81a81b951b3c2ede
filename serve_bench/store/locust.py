"""The CSV that `locust --csv` writes, as rows of a run.

Rule: a file is one launch. By what share a figure may be off within its file is `p50_error`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping


def read_locust(
    lines: Iterable[Mapping[str, str]],
) -> Iterator[tuple[str, int, int, float, dict[str, float]]]:
    """Yield name, requests, failures, rate (1/s) and other figures of each row of the statistics.

    A file of their history counts by its first and its last line, since its rates are means of
    several seconds. Raises LookupError, TypeError and ValueError."""
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
        yield label, sent, failed, rate, others
