"""Warnings about figures, each with its evidence and a hint.

Rule: a check reads a Result and nothing else, and names the trial. All thresholds are at the top
with their reasons. Reports show the warnings."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from serve_bench.analysis.connections import HINT, connection_wait
from serve_bench.analysis.statistics import CENSORED, FEWEST_LONG, LATENCY, MAIN, merged, read_rate
from serve_bench.core.failed_requests import failures_of, given_up_after_s, of_windows
from serve_bench.core.figures import counted, part_text
from serve_bench.core.load_result import FAILED_LATENCY, GIVEN_UP, ClientVerdict
from serve_bench.core.load_spec import FEWEST_WINDOWS, HANDLE, fitted_windows
from serve_bench.core.own_app import rescaled, scaling_hint
from serve_bench.core.proof import contradictions
from serve_bench.core.result import Result, Trial
from serve_bench.core.slo import time_text
from serve_bench.core.usage import others_words

BACKLOG: Final = 0.02
"""Of an open loop: with this share of answers beyond the due requests it was behind before."""

PROXIES: Final = ("haproxy", "proxy")

NEVER_IDLE: Final = 0.85
"""As the engine's own limit: a client below this share of time not idle could do more."""

OBSERVER: Final = "observer"  # the client of a row of `rpc`

SPREAD_LIMIT: Final = 0.15
"""Windows are unsteady above this std / mean. The published rows, on a quiet host with windows of
1 to 2 s, reach 5.6 %; rates in windows of 0.5 to 1 s on a shared 2-core host reach about 10 %."""

DRIFT_LIMIT: Final = 0.10
"""A rate that moves by more from the first half of the windows to the second still warms up, or
slows down. The change must also exceed three standard errors, since chance often makes one."""

OUTLIER_SHARE: Final = 0.5
"""One window is to blame when the spread without it is less than half of the spread with it."""

FEWEST_SAMPLES: Final = 100  # of fewer responses p99 is the slowest

BUSY_SHARE: Final = 0.5
"""From this share of cores in use just before the run on, the host counts as busy: others
use half of it, and the server, the clients and Ray need all of it."""

FOR_NOBODY: Final = 0.05  # of finished requests: what fewer take is less than windows differ by

THROTTLED: Final = 5.0
"""Percent of the periods of a CPU quota: a stop in fewer of them is in p99 at most."""

OTHERS_PERCENT: Final = 15.0
"""Other programs that use more of a core than this for most of a row spoil it: with two busy
processes of the server on two cores, one of them loses a tenth of its time to them."""

LITTLE_ABOVE: Final = 0.05
LITTLE_BELOW: Final = 0.10
"""Little's law: requests in flight = rate x mean time in flight. In a closed loop they cannot
exceed the connections, so 5 % above is an error of counting. They fall short by the time the client
spends between a response and its next request: 2 % for one aiohttp session at 7,400 requests/s,
below 0.5 % for 8 sessions and for the raw client (nginx, 2 shared cores, once); no Serve is as
fast, so 10 % below is more than that. Of requests in flight at the begin and at the end of the
windows the part within them counts. Where a record does not have that, they add time from before
and remove some: at most one a connection each, and no longer than the longest latency. So longest /
measured time is allowed on top there."""

TOO_SHORT_S: Final = 0.1
"""Little's law needs a measured part of at least this: a worker that waits for a core begins up to
10 ms after the others (measured on 2 cores), a tenth of this, and a load by count ends with its
last connection."""

ADDED: Final = 0.20
"""Above this share of the latency a client that the user may change is warned of."""


@dataclass(frozen=True)
class Warning:
    """A doubt about a figure, with its evidence and a hint."""

    code: str
    message: str
    hint: str
    key: str | None = None  # of its trial; None if it is about the whole run or about a variant
    variant: str | None = None
    profiled: bool = False  # about the profiled repetition of the trial


def checks(result: Result) -> tuple[Warning, ...]:
    """List all warnings about a run, then about its trials in the order measured.

    About a run: lines passed over, hosts, variants that were not in force, what clusters left."""
    unread = "what stood there is in no figure"
    found = [Warning(warning.code, warning.message, unread) for warning in result.warnings]
    sittings = [result.run.host, *(resume.host for resume in result.resumes)]
    for host in sittings:
        # `busy_cores` counts all cores, including those that we may not run on.
        busy, cores = host.busy_cores, host.logical_cores
        if busy is not None and cores and busy > BUSY_SHARE * cores:
            message = f"{busy:.1f} of {cores} cores were in use before the start"
            found.append(Warning("busy-host", message, "wait for other work to end, then repeat"))
    if len({host.id for host in sittings if host.id}) > 1:
        message = "the run was resumed on another host"
        found.append(Warning("other-host", message, "do not compare its figures"))
    for launch in result.launches:
        name, hint = launch.variant.name, f"launch {launch.id}: the variant was not in force"
        for wrong in contradictions(launch.variant, launch.proved):
            found.append(Warning("variant-not-engaged", f"{name}: {wrong}", hint, variant=name))
    for end in (end for end in result.teardowns if not end.clean):
        message = f"launch {end.launch} left: {', '.join(end.leftovers) or 'not known what'}"
        found.append(Warning("unclean-teardown", message, "serve-bench clean"))
    for trial in (*result.trials, *result.profiled):
        for seen in (seen for check in TRIAL_CHECKS for seen in check(trial)):
            after_s = given_up_after_s(trial, result) if seen.code == "errors" else None
            why = f"status 408: Serve cancelled them after --request-timeout-s {after_s or 0:g}; "
            hint = seen.hint if after_s is None else why + seen.hint
            found.append(replace(seen, hint=hint, profiled=trial.flags.profiled))
    for failure in result.failures:
        if failure.what == "worker" and failure.key is not None:
            hint = "its requests are excluded: measure the row again"
            found.append(Warning("worker-failed", failure.message, hint, failure.key))
    return tuple(found)


def _client(trial: Trial) -> Iterator[Warning]:
    """Warn of a client that was the limit, adds to the latency, or lacks connections."""
    verdict = trial.client.verdict
    if verdict is not None and verdict.client_bound:
        reasons = "; ".join(verdict.reasons) or "no reason given"
        hint = "use more load processes, or another machine for it"
        if trial.row.client == "aiohttp":
            hint = "use the raw client, more processes or more cores"
        message = f"{client_words(verdict)}: {reasons}"
        yield Warning("client-bound", message, hint, trial.key)
    if (added := added_of(trial)) and added[0] > ADDED * added[1] and trial.row.client != "raw":
        message = f"the {trial.row.client} client adds {part_text(*added)} of the latency"
        yield Warning("client-adds", message, "the raw client adds less", trial.key)
    if trial.row.loop == "open" and (wait := connection_wait(trial)) is not None:
        yield Warning("connections", wait.text, HINT, trial.key)


def added_of(trial: Trial) -> tuple[float, float] | None:
    """Return what the client adds to the mean latency, and that latency (ns); None if not known."""
    if (verdict := trial.client.verdict) is None:
        return None
    added, latency = verdict.added_ns, verdict.mean_latency_ns
    return (added, latency) if added is not None and latency else None


def client_words(verdict: ClientVerdict) -> str:
    """Say how a bound client affects the figures.

    One that was idle for part of the time does not limit the throughput, but was late to read or to
    send; one that waited for a CPU for longer than it ran is held up by whatever runs there."""
    busy, waited = verdict.non_idle, verdict.run_queue_wait
    if busy is not None and busy <= NEVER_IDLE:
        return "the client adds to the latency"
    held_up = busy is not None and waited is not None and waited > busy / 2
    return "the client waited for a CPU" if held_up else "the client was the limit"


def _windows(trial: Trial) -> Iterator[Warning]:
    """Warn of windows that are too short for a response, few, without an answer, or unsteady."""
    metric, rate = trial.metrics.get(MAIN), read_rate(trial)
    if metric is None or metric.windows is None:
        return
    count = len(metric.windows)
    if rate.responses and rate.responses < FEWEST_LONG:
        response_s = trial.window_s / rate.responses  # Little's law: connections / rate
        enough, length_s = fitted_windows(count, trial.window_s, response_s)
        digits = 0 if response_s > 10 else 2
        message = f"a response takes {response_s:,.{digits}f} s, a window {trial.window_s:g} s"
        if drained := trial.client.drained:
            bounds = "its latency is a lower bound"
            bounds = bounds if drained == 1 else "their latencies are lower bounds"
            late = f"{counted(drained, 'response')} came after the windows, without new load"
            message += f"; {late}: {bounds}"
        hint = f"measure {max(enough, FEWEST_WINDOWS)} of {length_s:,.1f} s"
        yield Warning("too-slow", message, hint, trial.key)
    if trial.flags.fitted:
        return
    if count < FEWEST_WINDOWS and trial.row.requests is None:
        message = f"{counted(count, 'window')}: spread unknown"
        quick = "without --quick" if trial.client.stretched else ""
        hint = quick or f"measure {FEWEST_WINDOWS} or more"
        yield Warning("few-windows", message, hint, trial.key)
    if (silent := rate.silent_from) is not None:
        since_s, silent_s = (n * trial.window_s for n in (silent, count - silent))
        message = f"no request succeeded from second {since_s:g} to the end ({silent_s:g} s)"
        before = "the rate is of the time before" if silent > 1 else "so there is no rate"
        hint = f"{before}; the log of the replica may say why"
        yield Warning("standstill", message, hint, trial.key)
        return
    how = unsteady(metric.windows, metric.unit) if rate.has_spread else None
    if how is not None and not (trial.limits and rescaled(trial.limits)):
        hint = "other work on the host, or an unsteady server: repeat, or use --launches"
        yield Warning("unsteady-windows", how, hint, trial.key)


def unsteady(windows: Sequence[float], unit: str) -> str | None:
    """Say how the windows are unsteady, in a few words; None if they are steady.

    In this order: a drift between the halves, a single window that stands out, a large spread."""
    mean = statistics.fmean(windows) if windows else 0.0
    if len(windows) < FEWEST_WINDOWS or mean <= 0:
        return None
    half = len(windows) // 2
    first, rest = windows[:half], windows[-half:]
    start = statistics.fmean(first)
    if half >= FEWEST_WINDOWS and start > 0:
        end = statistics.fmean(rest)
        noise = ((statistics.variance(first) + statistics.variance(rest)) / half) ** 0.5
        share, word = abs(end / start - 1), "rises" if end > start else "falls"
        if share > DRIFT_LIMIT and abs(end - start) > 3 * noise:
            halves = "from the first half of the windows to the rest"
            return f"the rate {word} by {100 * share:.0f} % {halves}"
    if (wide := statistics.pstdev(windows) / mean) <= SPREAD_LIMIT:
        return None
    middle = statistics.median(windows)
    odd = max(range(len(windows)), key=lambda index: abs(windows[index] - middle))
    others = [value for index, value in enumerate(windows) if index != odd]
    calm = statistics.pstdev(others) / (statistics.fmean(others) or 1.0)
    if len(others) >= FEWEST_WINDOWS and calm < OUTLIER_SHARE * wide:
        which = f"window {odd + 1} of {len(windows)} stands out"
        return f"{which}: {windows[odd]:.1f} {unit}, median {middle:.1f}"
    return f"the windows spread by {100 * wide:.0f} % of their mean"


def _failed(trial: Trial) -> Iterator[Warning]:
    """Warn of failed requests, work for clients that left, instant retries, and bare [DONE]."""
    if failed := trial.counts.failed_total:
        which = f"{failed:,} of {trial.counts.completed + failed:,} requests{of_windows(trial)}"
        message = f"{which} failed: {failures_of([trial])}"
        kinds = [name for name in trial.metrics if name.startswith(f"{FAILED_LATENCY}.")]
        kinds += [LATENCY] if trial.counts.completed else []
        times = []
        for name in kinds if len(kinds) > 1 else ():
            if ns := merged([trial], name).percentile(0.5):
                kind = name.partition(".")[2] or "completed"
                times.append(f"{time_text(float(f'{ns:.2g}'))} ({kind})")
        message += f"; median latency {', '.join(times)}" if times else ""
        hint = "excluded from rate and latency"
        if any(map(trial.counts.failed.get, GIVEN_UP)) and CENSORED in trial.metrics:
            hint = "excluded from the rate; timeouts make latency a lower bound"
        yield Warning("errors", message, hint, trial.key)
    name, lost, finished = trial.waits.for_nobody or ("", 0, 0)
    if lost > FOR_NOBODY * finished:
        message = f"{lost:,} of {finished:,} requests that {name} finished ({lost / finished:.0%})"
        hint = "in a look inside: threads, and code that ignores its cancellation, work on"
        yield Warning("for-nobody", f"{message} had no client left", hint, trial.key)
    retried, answered = trial.client.retried, max(1, trial.counts.completed)
    if retried > answered and not trial.client.asked.honor_retry_after:
        busy = sum(use.cpu_percent or 0.0 for use in trial.usage.processes if use.role in PROXIES)
        message = f"{retried / answered:,.3g} retries at once for each answer"
        message += f"; meanwhile the proxy used {busy:.0f} % of a core" if busy else ""
        hint = "load: --honor-retry-after waits as long as the server asks"
        yield Warning("instant-retries", message, hint, trial.key)
    if bare := trial.client.bare:
        message = f"{bare:,} of {counted(trial.completed_in_windows, 'stream')} ended with [DONE] "
        hint = "they count as whole, as clients take them"
        yield Warning("bare-done", f"{message}in place of data: [DONE]", hint, trial.key)


def _little(trial: Trial) -> Iterator[Warning]:
    """Warn where the requests in flight contradict Little's law."""
    if trial.row.requests is not None:
        # It ends with the last client's last request, when others have none left. Of a row that was
        # cut off, the report says what its latencies lack.
        return
    windows = trial.metrics[MAIN].windows if MAIN in trial.metrics else None
    measured_s = trial.window_s * len(windows or ())
    if trial.flags.interrupted:  # in the middle of a window
        measured_s = trial.seconds.measured or measured_s
    latency, failed = merged([trial], "latency"), merged([trial], "failed_latency")
    if trial.row.loop != "closed" or not measured_s or latency.unit != "ns":
        return
    busy_s, longest_s = trial.client.busy_s, 0.0
    if busy_s is None:
        if trial.counts.in_flight or not latency.count:
            return  # how they ended is not known: `_around` warns
        busy_s = sum((h.mean or 0.0) * h.count for h in (latency, failed)) / 1e9
        longest_s = max(h.max or 0.0 for h in (latency, failed)) / 1e9
    in_flight, edge = busy_s / measured_s, longest_s / measured_s
    # Requests of lost nodes are in no latency.
    lost = (node.connections for node in trial.client.nodes if node.lost)
    connections = trial.row.connections - sum(lost)
    share = in_flight / connections if connections > 0 else 1.0
    if share < 1 and trial.row.client == OBSERVER:
        return  # an episode ends with the last call of the slowest observer
    if 1 - LITTLE_BELOW - edge <= share <= 1 + LITTLE_ABOVE + edge:
        return
    if share < 1 and measured_s < TOO_SHORT_S:
        message = f"{1000 * measured_s:.3g} ms were measured: too short to judge"
        yield Warning("too-short", message, f"measure {TOO_SHORT_S:g} s or more", trial.key)
        return
    times = f"the times of the requests make {in_flight:.2f} in flight"
    message = f"{times}, but {connections} connections were open"
    hint = "idle connections: the client was late, or responses were lost"
    if share > 1:
        hint = "impossible: ignore this row"
    yield Warning("littles-law", message, hint, trial.key)


def _around(trial: Trial) -> Iterator[Warning]:
    """Warn of requests without an end, answers to earlier requests, and of the warm-up."""
    counts, waiting, within = trial.counts, trial.unanswered, trial.client.in_windows
    if waiting > 0 and not trial.flags.cut:  # else the report says what its latencies lack
        due = counts.carried_in + counts.sent + counts.unsent
        unsent = f" ({counts.unsent:,} of them not even sent)" if counts.unsent else ""
        when = "interrupted" if trial.flags.interrupted else "the drain ended"
        message = f"{waiting:,} of {due:,} had no answer when {when}{unsent}"
        yield Warning("unanswered", message, ">: at least", trial.key)
    earlier = 0 if within is None else within.completed - counts.completed
    if within and trial.row.loop == "open" and earlier > BACKLOG * max(1, counts.completed):
        message = f"{earlier:,} of {within.completed:,} responses in the windows were due before"
        message += " them; throughput is not the arrival rate"
        hint = "the server stalled in the warm-up: repeat, or use a longer warm-up"
        yield Warning("backlog", message, hint, trial.key)
    # That of a handle has a fixed length, as published, and a row by count has none; where no
    # request succeeded, another check says why.
    judged = trial.row.client != HANDLE and trial.row.requests is None and trial.warmup.seconds
    if judged and trial.counts.completed and trial.warmup.judged is False:
        message = f"{trial.warmup.completed:,} requests, too few"
        yield Warning("unjudged-warmup", message, "longer warm-up", trial.key)
    elif judged and trial.counts.completed and not trial.warmup.steady:
        message = f"the rate was not steady after {trial.warmup.seconds:.1f} s of warm-up"
        yield Warning("unsteady-warmup", message, "give it a longer warm-up", trial.key)
    if trial.flags.unsettled:
        message = "latency of one client was above its first value when this row began"
        hint = "the service may still process the previous row: repeat, or use fewer clients"
        yield Warning("unsettled", message, hint, trial.key)


def is_unfair(trial: Trial) -> bool:
    """Return whether other programs used much of a core for most of a trial."""
    others = trial.usage.others
    return others is not None and (others.typical_percent or 0.0) > OTHERS_PERCENT


def unfair_sentences(trials: Sequence[Trial], subject: str = "") -> Iterator[str]:
    """Yield a sentence on what other programs used in trials that they made unfair, if any.

    Reports say it before any figure. `subject`: what was measured, where that is not plain."""
    if unfair := [trial for trial in trials if is_unfair(trial)]:
        words = others_words([trial.usage for trial in unfair])
        where = f", in {len(unfair)} of {len(trials)} trials" if len(trials) > 1 else ""
        yield f"Not a fair measurement{subject and f' of {subject}'}: {words}{where}."


def _rest(trial: Trial) -> Iterator[Warning]:
    """Warn of few samples, of replicas, and of other programs."""
    count = merged([trial], "latency").count if "latency" in trial.metrics else FEWEST_SAMPLES
    count += trial.client.drained
    if trial.counts.completed and count < FEWEST_SAMPLES:
        message = f"p99 rests on {counted(count, 'response')}"
        yield Warning("few-samples", message, "measure longer", trial.key)
    if trial.limits and (changed := rescaled(trial.limits)) is not None:
        name, message = changed
        yield Warning("rescaled", message, scaling_hint(name, trial.limits) or "", trial.key)
    for name, limit in trial.limits.items():
        if limit.ran and limit.ran[-1] < limit.wanted:
            message = f"{name}: {limit.ran[-1]} of {limit.wanted} replicas ran that Serve wanted"
            hint = "the cluster has no room for the others, or they take long to start"
            yield Warning("replicas-missing", message, hint, trial.key)
    if idle := [name for name, count in trial.served.items() if count == 0]:
        message = f"{len(idle)} of {len(trial.served)} replicas got no request"
        hint = "the router did not need them: use more connections"
        yield Warning("idle-replicas", message, hint, trial.key)
    stopped = trial.usage.host.throttled_percent
    if stopped is not None and stopped > THROTTLED:
        message = f"the CPU quota was used up in {stopped:.0f} % of its periods"
        if added := added_of(trial):
            late, rest = (time_text(float(f"{ns:.2g}")) for ns in (added[0], added[1] - added[0]))
            message += f"; the client was late by {late}: the server's mean is {rest} at most"
        yield Warning("throttled", message, "a larger quota, or one for the client", trial.key)
    if is_unfair(trial):
        hint = "end them, or measure on another host; --strict-host makes this exit code 3"
        yield Warning("other-programs", others_words([trial.usage]), hint, trial.key)


TRIAL_CHECKS: Final = (_failed, _client, _little, _around, _windows, _rest)
