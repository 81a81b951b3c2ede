"""What `serve_benchmark` gives: rounds of `requests`, through pytest-benchmark's own fixture.

Rule: pytest-benchmark makes the rounds and keeps their times. A round's time is that of the load
alone, from its first request to its last response; starting processes and connecting is not in it.
Everything else goes to `extra_info`. What failed is not stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import structs

from serve_bench.analysis.slo import RowSlo, judge
from serve_bench.analysis.statistics import LowerBound
from serve_bench.core.errors import BadInput, RunFailed
from serve_bench.core.failed_requests import failures
from serve_bench.core.histogram import Histogram, bounded
from serve_bench.core.load_result import LoadResult
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.own_app import Asked, Option
from serve_bench.core.plan import parse_row, row_of, trial_of
from serve_bench.core.result import PlannedTrial, Trial
from serve_bench.core.slo import EXAMPLE, Slo, read_slo
from serve_bench.core.traffic import Traffic
from serve_bench.load.driver import drive_load
from serve_bench.load.failures import LoadError
from serve_bench.observing.host import fingerprint
from serve_bench.pytest_plugin.target import ServeTarget, check_kind, one_line, request_of
from serve_bench.view.slo import slo_facts

WHERE: Final = "serve_benchmark"

#: A load is checked before there is an address, which a deploy takes long to give.
NOWHERE: Final = "http://localhost"

#: Upper end of a round.
MOST_S: Final = 86_400.0


@dataclass
class LoadTimer:
    """A timer for pytest-benchmark, which advances by the time of each load alone."""

    loaded_s: float = 0.0

    def load_time(self) -> float:
        """Return the seconds of load so far."""
        return self.loaded_s


@dataclass(eq=False, repr=False)
class ServeBenchmark:
    """The value of the fixture `serve_benchmark`, called once in a test."""

    _node: pytest.Item
    _benchmark: Any
    _target: ServeTarget
    _reports: list[tuple[str, list[str]]]
    _called: bool = False
    _results: list[LoadResult] = field(default_factory=list)
    _lines: list[str] = field(default_factory=list)

    def __call__(  # noqa: PLR0913 - a keyword for each option
        self,
        target: str,
        load: str = "raw:8",
        *,
        requests: int = 1000,
        rounds: int = 10,
        warmup_rounds: int = 1,
        route: str | None = None,
        method: str | None = None,
        headers: Mapping[str, str] | None = None,
        body: object = None,
        expect_status: tuple[int, ...] = (),
        options: Mapping[str, Option] | None = None,
        errors_allowed: bool = False,
        timeout_s: float = 30.0,
        round_timeout_s: float = 120.0,
        slo: str | None = None,
    ) -> RoundFigures:
        """Load `target`, an app (`module:app`, `file.py:app`) or a URL, and return the figures.

        `load`: `raw:8` (connections of the raw client) or `8` (aiohttp clients). A round is of
        exactly `requests` requests, and its time is that of the load alone. `rounds` and
        `warmup_rounds`, which are not timed: of `benchmark.pedantic`. `body`: text, bytes, or what
        becomes JSON. `expect_status`: what is no failure [any 2xx]. Failed requests fail the test
        unless `errors_allowed`. `timeout_s` is for a request, `round_timeout_s` for a round.

        `slo`: objectives over all rounds, as `p99=50ms,errors=0.1%`. AssertionError where one is
        missed; one of errors says how many may fail.
        """
        __tracebackhide__ = True
        with one_line():
            _check_numbers(
                {"requests": requests, "rounds": rounds, "warmup_rounds": warmup_rounds},
                {"timeout_s": timeout_s, "round_timeout_s": round_timeout_s},
            )
            self._check_once(rounds, warmup_rounds)
            objectives = _read_slo(slo, requests * rounds)
            named = objectives.objectives if objectives is not None else ()
            errors_allowed |= any(goal.kind == "errors" and goal.given for goal in named)
            if not 0 < round_timeout_s < MOST_S:
                raise BadInput(f"{WHERE}: round_timeout_s must be above 0, got {round_timeout_s}")
            request = request_of(route, method, headers, body, expect_status)
            http_load = _load(load, request, requests, timeout_s)
            url = self._url(target, request, route, options)
            http_load = replace(http_load, request=replace(http_load.request, url=url))
            host, served = structs.asdict(fingerprint()), self._served(url, target)
            try:
                self._benchmark.pedantic(
                    self._drive,
                    args=(http_load, round_timeout_s, errors_allowed),
                    rounds=rounds,
                    warmup_rounds=warmup_rounds,
                )
                casualties = self._target.cluster.casualties() if served.variant else []
                if casualties:
                    why = "the figures are of a broken cluster"
                    raise RunFailed(f"{casualties[0]} during the rounds: {why}")
            except BaseException:  # Ctrl-C too: a part of the rounds must not be stored
                self._benchmark.has_error = True
                raise
        # Without timing there is one round; one that is profiled comes behind the others.
        first = warmup_rounds if self._benchmark.enabled else 0
        results = self._results[first : first + rounds]
        figures = compute_figures(http_load, results, served, host)
        self._benchmark.extra_info.update(figures.to_json())
        self._lines = figures.lines()
        self._reports.append((self._node.nodeid, self._lines))
        if objectives is not None and self._benchmark.enabled:
            trials = [_make_trial(http_load, result) for result in results]
            row = RowSlo("", judge(objectives, trials))
            self._benchmark.extra_info["slo"] = slo_facts(row)
            self._lines.append(f"slo: {objectives.text}: {row.word}: {row.worst.text}")
            if row.word != "met":
                raise AssertionError(f"slo: {row.worst.text}")
        return figures

    def drop(self) -> None:
        """Note that the test failed: pytest-benchmark stores nothing of a fixture with an error."""
        self._benchmark.has_error = True
        if self._lines:
            self._lines.append("not stored: the test failed")

    def _check_once(self, rounds: int, warmup_rounds: int) -> None:
        if self._called:
            raise BadInput(f"{WHERE}: only once in a test, as pytest-benchmark has it")
        if rounds < 1:
            raise BadInput(f"{WHERE}: rounds must be 1 or more, got {rounds}")
        if warmup_rounds < 0:
            raise BadInput(f"{WHERE}: warmup_rounds must be 0 or more, got {warmup_rounds}")
        self._called = True

    def _url(
        self, target: str, request: Asked, route: str | None, options: Mapping[str, Option] | None
    ) -> str:
        if "://" not in target:
            return self._target.cluster.deploy(target, options or {}, request) + request.route
        if options:
            raise BadInput(f"{WHERE}: options are for an app, not for a URL")
        path = target.split("://", 1)[1].partition("/")[2]
        if route is not None and path:
            raise BadInput(f"{WHERE}: route: {target} has a path already; give one of the two")
        return target.rstrip("/") + request.route if not path else target

    def _served(self, url: str, target: str) -> Served:
        cluster = self._target.cluster
        if cluster.url is None or not url.startswith(cluster.url + "/"):
            return Served(target)
        name = target if "://" not in target else Path(cluster.target).name
        return Served(
            name, cluster.variant.name, cluster.ray, dict(cluster.replicas), dict(cluster.options)
        )

    def _timer(self) -> LoadTimer:
        marker = self._node.get_closest_marker("benchmark")
        assert marker is not None, "added when the test was collected"
        timer: LoadTimer = marker.kwargs["timer"].__self__
        return timer

    def _drive(self, load: Load, longest_s: float, errors_allowed: bool) -> None:
        """Run a round. Raises RunFailed when it was not whole or requests of it failed."""
        timing = Timing(0.0, 0.0, windows=1, window_s=longest_s)
        try:
            result = drive_load(load, timing, mark=self._target.cluster.mark)
        except LoadError as error:
            raise RunFailed(f"the load could not be run: {error}") from None
        number, count = len(self._results) + 1, load.count or 0
        for lost in result.failures:
            raise RunFailed(f"round {number}: {lost.who} failed: {lost.reason}")
        ended = result.ended_in_windows  # what came in the drain is in no figure of the round
        if ended < count:
            raise RunFailed(
                f"round {number} was cut off after {longest_s:g} s: {ended:,} of {count:,} "
                "requests had ended; ask for fewer, or give round_timeout_s"
            )
        failed = {name: n for name, n in result.measured.failed.items() if n}
        if failed and not errors_allowed:
            raise RunFailed(
                f"round {number}: {sum(failed.values()):,} of {count:,} requests failed: "
                f"{failures(failed, result.status_codes, result.seen)}"
            )
        self._results.append(result)
        self._timer().loaded_s += result.duration_s


def _check_numbers(whole: Mapping[str, object], others: Mapping[str, object]) -> None:
    """Raise BadInput where a number is none, or one of `whole` is not whole."""
    for name, value in {**whole, **others}.items():
        kinds, takes = (int, "a whole number") if name in whole else (int | float, "a number")
        fits = isinstance(value, kinds) and not isinstance(value, bool)
        check_kind(f"{WHERE}: {name}", value, fits, takes)


def _read_slo(text: object, requests: int) -> Slo | None:
    """Read the SLO of the argument; raise BadInput where `requests` are too few for it."""
    if text is None:
        return None
    check_kind(f"{WHERE}: slo", text, isinstance(text, str), f"text, as {EXAMPLE}")
    slo = read_slo(str(text), f"{WHERE}: slo")
    for goal in slo.objectives:
        if goal.fewest > requests:
            raise BadInput(
                f"{WHERE}: slo: {goal.name} needs {goal.fewest:,} requests in all rounds, got "
                f"{requests:,}"
            )
    return slo


def _make_trial(load: Load, result: LoadResult) -> Trial:
    """Return a round as a trial, for its SLO."""
    return trial_of(PlannedTrial("", 1, "", {}, row_of(load)), "", "", result, result.duration_s)


def _load(text: str, request: Asked, requests: int, timeout_s: float) -> Load:
    row = parse_row(text, Traffic(), f"{WHERE}: load")
    client: Any = row.client  # parse_row knows raw and aiohttp alone
    made, size = request.request(NOWHERE), row.connections
    return Load(made, client=client, connections=size, count=requests, timeout_s=timeout_s)


@dataclass(frozen=True)
class Served:
    """What answered: a URL, or an app that this session deployed."""

    target: str
    variant: str | None = None  # None, as what follows: this session did not deploy it
    ray: str | None = None
    replicas: Mapping[str, int] | None = None  # by deployment
    options: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class RoundFigures(Served):
    """Latencies in milliseconds; None where nothing was answered.

    `requests`: of a round. `requests_per_s`: completed requests over the time of all rounds.
    `errors`: failed requests by class. `client_bound`: more than half of the rounds were, with the
    reasons of the last such round.
    """

    rounds: int
    requests: int
    requests_per_s: float
    completed: int
    errors: Mapping[str, int]
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    client: str
    connections: int
    client_bound: bool
    client_reasons: tuple[str, ...]
    host: Mapping[str, Any]

    @property
    def failed(self) -> int:
        """Failed requests of all classes."""
        return sum(self.errors.values())

    def to_json(self) -> dict[str, Any]:
        """Return plain content for `extra_info`; pytest-benchmark keeps the rounds' times."""
        return asdict(self) | {"client_reasons": list(self.client_reasons)}

    def lines(self) -> list[str]:
        """Render a few lines for a terminal: what was measured, of what, and a warning."""
        latency = f"p50 {_format_ms(self.p50_ms)}, p99 {_format_ms(self.p99_ms)}"
        rate, noun = self.requests_per_s, "round" if self.rounds == 1 else "rounds"
        lines = [
            f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}",
            f"{self.client}:{self.connections}, {self.rounds} {noun} of {self.requests:,} requests",
        ]
        lines[0] += f" requests/s, {latency}, errors: {failures(self.errors) or 'none'}"
        if self.variant is not None:
            replicas = ", ".join(f"{name} {n}" for name, n in (self.replicas or {}).items())
            lines.append(f"{self.variant}, Ray {self.ray}, replicas: {replicas or 'not known'}")
        if self.client_bound:
            reasons = "; ".join(self.client_reasons) or "no reason given"
            lines.append(f"warning: the client was the limit: {reasons}")
        return lines


def compute_figures(
    load: Load, results: Sequence[LoadResult], served: Served, host: Mapping[str, Any]
) -> RoundFigures:
    """Compute the figures over the rounds of a load (at least one)."""
    latency, censored = Histogram(), Histogram()
    errors: Counter[str] = Counter()
    for result in results:
        latency.merge(result.latency)
        censored.merge(result.censored)
        errors.update({name: count for name, count in result.measured.failed.items() if count})
    bound = [result.verdict for result in results if result.verdict.client_bound]
    client_bound = len(bound) > len(results) / 2
    completed = sum(result.completed_in_windows for result in results)
    total_s = sum(result.duration_s for result in results)
    p50, p90, p99, highest = (
        LowerBound((value or 0) / 1e6) if lower else value and value / 1e6
        for value, lower in bounded(latency, censored, (0.5, 0.9, 0.99, 1.0))
    )
    if not censored.count and latency.max is not None:
        highest = latency.max / 1e6
    return RoundFigures(
        rounds=len(results),
        requests=load.count or 0,
        requests_per_s=completed / total_s if total_s > 0 else 0.0,
        completed=completed,
        errors=dict(errors),
        p50_ms=p50,
        p90_ms=p90,
        p99_ms=p99,
        max_ms=highest,
        client=load.client,
        connections=load.connections,
        client_bound=client_bound,
        client_reasons=bound[-1].reasons if client_bound else (),
        **vars(served),
        host=host,
    )


def _format_ms(value: float | None) -> str:
    sign = "> " if isinstance(value, LowerBound) else ""
    return "-" if value is None else f"{sign}{value:.3g} ms"
