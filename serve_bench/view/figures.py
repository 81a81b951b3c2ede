"""Figures: what can be said of a row in one number, each declared once for all kinds of run.

A declaration has the name, the unit, the formula and how the figure is shown; tables, JSON, CSV
and charts follow from it. A second declaration of a name is an error. A family has one member for
each name of something in a run: `batch_size_mean.Ranker` of `batch_size_mean`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from serve_bench.analysis.statistics import MAIN, STATISTICS, Line, LowerBound
from serve_bench.analysis.statistics import Value as Value
from serve_bench.core.figures import decimals, number
from serve_bench.core.load_result import CENSORED_BY, FAILED_LATENCY, STREAM_TIMES
from serve_bench.core.result import Better
from serve_bench.core.usage import BATCH_SIZE, mean_forward_ns
from serve_bench.view.document import Tone
from serve_bench.view.inside import gpu_percent, grouped_cpu, host_cpu

FACTORS: Final = {("ns", "ms"): 1e-6, ("ns", "us"): 1e-3, ("ns", "s"): 1e-9}
"""By what a value is multiplied to be shown in another unit than its own."""

Compute: TypeAlias = Callable[[Line], Value | float | None]
"""What makes a figure of a row; None where it was not seen."""


@dataclass(frozen=True)
class Figure:
    """A quantity, declared once for all kinds of run."""

    name: str
    unit: str  # of its values, in JSON and CSV
    meaning: str  # what it is, in one line
    title: str
    shown: str  # the unit in tables and charts
    compute: Compute  # from the trials of a row; None of what a kind of run derives
    better: Better | None
    tone: Tone  # where it is not 0
    digits: int  # of it and its interval, none behind the point of a whole one; 0: by the unit

    def show(self, value: Value | None, unit: str = "") -> str:
        """Render `629.4 ± 5.3`, `> 5,245`, `187 of 200`; `-` without a value."""
        if value is None:
            return "-"
        unit = unit or self.shown
        factor = FACTORS.get((self.unit, unit), 1.0)
        scaled, ends = value.value * factor, (value.low, value.high) if self.digits else ()
        if self.digits:
            text = shorten(scaled, self.digits)
        elif unit in ("%", ""):  # shares of a core, and counts
            text = f"{scaled:,.0f}"
        elif unit == "1":
            text = f"{scaled:.2f}" if scaled >= 0.1 else f"{scaled:.2g}"
        elif unit == "us":  # as published: a decimal where it says something, and no commas
            text = f"{scaled:.1f}" if scaled < 10_000 else f"{scaled:.0f}"
        else:  # three digits of milliseconds, which a histogram holds; four of others
            text = number(scaled, 3 if unit in ("ms", "mean") else 4)
        words = [shorten(end * factor, self.digits) for end in ends if end is not None]
        text += f" ({' to '.join(words)})" if len(set(words)) > 1 else ""
        text += "" if value.std is None else f" ± {value.std * factor:,.{decimals(scaled)}f}"
        text += "" if value.of is None else f" of {value.of:,.0f}"
        return f"> {text}" if isinstance(value.value, LowerBound) else text

    def place(self, value: Value) -> tuple[float, float | None, float | None]:
        """Return a value and the ends of its interval, in the unit in which it is shown."""
        factor = FACTORS.get((self.unit, self.shown), 1.0)
        low, high = (None if end is None else end * factor for end in value.ends)
        return value.value * factor, low, high


def shorten(value: float, digits: int = 3) -> str:
    """Render with so many digits, none behind the point of a whole number; what is below is 0."""
    whole = abs(value - round(value)) < 1e-9 or abs(value) < 0.5 * 10.0**-digits
    return f"{round(value):,}" if whole else number(value, digits)


FIGURES: Final[dict[str, Figure]] = {}


def declare(
    *figures: tuple[str, ...],
    compute: Compute = lambda line: None,
    shown: str | Mapping[str, str] | None = None,
    better: Better | None = None,
    tone: Tone = "plain",
    digits: int = 0,
) -> None:
    """Declare figures of (name, unit, meaning) or (name, unit, meaning, title).

    `shown`: in which unit, or those of a unit, where it is another. Raises ValueError where a name
    is taken."""
    for name, unit, meaning, *title in figures:
        if name in FIGURES:
            raise ValueError(f"the figure {name} is declared twice")
        words = "".join(title) or name.replace("_", " ")
        other = shown.get(unit) if isinstance(shown, Mapping) else shown
        in_words = ("ms" if unit == "ns" else unit) if other is None else other
        FIGURES[name] = Figure(name, unit, meaning, words, in_words, compute, better, tone, digits)


def compute_values(line: Line, names: Iterable[str]) -> Iterator[tuple[str, Value]]:
    """Yield the figures of these names that were seen, then the record's declared metrics."""
    for name in names if line.trials else ():
        if (value := FIGURES[name].compute(line)) is not None:
            yield name, value if isinstance(value, Value) else Value(value)
    yield from (pair for pair in line.spreads.items() if pair[0] in FIGURES)
    for metric, statistics_of in line.distributions.items():
        base, dot, member = metric.partition(".")
        if f"{base}_mean" in FIGURES:
            for name, number_of in statistics_of.items():
                yield f"{base}_{name}{dot}{member}", Value(number_of)


def known_values(**values: float | None) -> dict[str, Value]:
    """Return values by their figures, without those that are not known."""
    return {name: Value(value) for name, value in values.items() if value is not None}


def mean_of(values: Iterable[float | None]) -> float | None:
    """Return the mean of those that are known; None without any."""
    numbers = [float(value) for value in values if value is not None]
    return statistics.fmean(numbers) if numbers else None


declare((MAIN, "requests/s", "completed requests in a second of the windows"), better="higher")
declare(("events", "1/s", "events of streams in a second of the windows", "events/s"))
declare(("server_cpu", "s", "CPU of the server in each window"))

_TIMES: Final[Mapping[str, str]] = {
    "latency": "from the moment a request was due until its answer",
    "service_time": "from the moment a request was sent until its answer",
    "send_lag": "from the moment a request was due until it was sent",
    "pickup": "from the kernel's receipt of an answer until the client reads it",
    "ttfb": "from the moment a request was due until its first byte",
    "ttft": "from the moment a request was due until its first event",
    "itl": "from one event to the next",
    "handling": "what the client itself takes for a request",
    FAILED_LATENCY: "from the moment a request was due until it failed",
    **dict.fromkeys(CENSORED_BY.values(), "so far, of requests that had no answer"),
    "agent_latency": "from a batch's first request until each has its action",
    BATCH_SIZE: "requests that a replica took at once, warm-up included",
}
"""What is kept as a histogram: `latency` has `latency_p50` and further statistics."""


TIME_NAMES: Final = {
    metric: metric.upper() if metric in STREAM_TIMES else metric.replace("_", " ")
    for metric in _TIMES
}
"""TTFB, TTFT and ITL are short names of the field."""

for _metric, _meaning in _TIMES.items():
    for _statistic in STATISTICS:
        _is_time = _metric != BATCH_SIZE and _statistic != "count"
        _unit = "ns" if _is_time else "1" if _statistic == "count" else "requests"
        _title = {"p99_9": "p99.9", "count": "values"}.get(_statistic, _statistic)
        _time = TIME_NAMES[_metric]
        _short = f"{_time} {_title}".removeprefix("latency ")
        declare(
            (f"{_metric}_{_statistic}", _unit, f"{_title} of the {_time}: {_meaning}", _short),
            shown=None if _is_time else "mean" if _statistic == "mean" else "",
            better=None if _statistic == "count" else "lower",
        )


declare(
    ("completed", "requests", "answered requests"), compute=lambda line: line.completed, shown=""
)
declare(
    ("errors", "requests", "failed requests"),
    compute=lambda line: line.errors,
    shown="",
    tone="bad",
)
_meaning = "requests/s over those of the same row under the first variant"
declare(("launch_ratio", "1", _meaning, "ratio"), compute=lambda line: line.ratio)

_TIERS: Final = {
    **{"replica Ranker": "ranker", "replica Ingress": "ingress", "replica": "replicas"},
    **dict.fromkeys(("haproxy", "proxy"), "HTTP"),
}


def _cpu(group: Callable[[str], str], name: str, line: Line) -> float | None:
    """Return the CPU of processes whose roles have this group, % of a core, mean over launches."""
    return grouped_cpu([trial.usage for trial in line.trials], group).get(name)


def tier_of(role: str) -> str:
    """Return the tier of a recommender that a process is of."""
    return next((tier for start, tier in _TIERS.items() if role.startswith(start)), "others")


def _side(role: str) -> str:
    return {"load_worker": "client", "serve_bench": "tool"}.get(role, "service")


for _group, _name, _meaning in (
    *((tier_of, tier, tier) for tier in dict.fromkeys(_TIERS.values())),
    *((_side, "service", "the service"), (_side, "client", "the load workers")),
):
    _words = f"CPU of all processes of {_meaning}, % of a core"
    declare((f"cpu_{_name.lower()}", "%", _words, _name), compute=partial(_cpu, _group, _name))


def _host(line: Line) -> Value | None:
    host, cores = host_cpu([trial.usage for trial in line.trials])
    return None if host is None else Value(host, of=100.0 * cores if cores else None)


declare(
    ("cpu_host", "%", "CPU of all that runs on the host, of all its cores", "host"), compute=_host
)
declare(
    ("gpu", "%", "use of all GPUs together", "GPU"),
    compute=lambda line: mean_of(
        map(gpu_percent, line.trials if line.cell.get("device") != "cpu" else ())
    ),
)
declare(
    ("forward", "ns", "the model for a batch, from features as they came to scores"),
    compute=lambda line: mean_forward_ns(trial.forward for trial in line.trials),
)
declare(("idle_while_queued", "%", "slots idle in a look inside, while requests waited for them"))


def _for_nobody(line: Line) -> Value | None:
    counts = [counts for trial in line.trials if (counts := trial.waits.for_nobody)]
    lost = sum(given_up for _, given_up, _ in counts)
    return Value(lost, of=sum(finished for *_, finished in counts)) if counts else None


_meaning = "requests that handlers were seen to finish after they were given up, in a look"
declare(
    ("finished_for_nobody", "requests", _meaning), compute=_for_nobody, shown="", better="lower"
)


def _level(name: str, line: Line) -> float | None:
    """Return a level by Serve's own metrics, mean over the launches that have a fresh one."""
    values = [trial.serve_metrics.levels.get(name) for trial in line.trials]
    return mean_of(value for value in values if isinstance(value, int | float))


for _name, _meaning in (
    ("ongoing", "requests at work"),
    ("queued", "requests that wait in the proxy"),
    ("router_queue", "requests that wait in routers"),
):
    _words, _compute = f"{_meaning}, by Serve's own metrics", partial(_level, _name)
    declare((_name, "requests", _words), compute=_compute, shown="")


def tokens_per_s(line: Line) -> float | None:
    """Return the tokens of answers per second; None where the service counted none."""
    seconds, tokens = 0.0, 0
    for trial in line.trials:
        if (counts := trial.client.tokens) is not None and counts.requests:
            seconds += trial.seconds.measured
            tokens += counts.answer
    return tokens / seconds if seconds > 0 else None


_meaning = "tokens of answers in a second, as the service counts them"
declare(("tokens", "1/s", _meaning, "tokens/s"), compute=tokens_per_s)

ROW_FIGURES: Final = ("completed", "errors", "launch_ratio", "finished_for_nobody")
INSIDE: Final = (
    *("forward", "cpu_ranker", "cpu_ingress", "cpu_replicas", "cpu_http"),
    *("cpu_service", "cpu_client", "cpu_host", "gpu"),
)
COMMON: Final = tuple(FIGURES)
"""What rows of any kind of run may have; a kind declares further ones."""
