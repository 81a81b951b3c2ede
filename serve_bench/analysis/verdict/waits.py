"""Candidates from looks inside the replicas: where requests wait.

Rule: a candidate names the line of the app, or the deployment, and the number of requests there.
__init__.py chooses among candidates.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from serve_bench.analysis.verdict import limits
from serve_bench.analysis.verdict.candidates import HINTS, Candidate, slots_candidate
from serve_bench.analysis.verdict.evidence import Evidence
from serve_bench.analysis.verdict.usage import WaitPlace, count_places, figure, short_name
from serve_bench.core.facts import BatchQueueFacts, CallFacts, PoolFacts
from serve_bench.core.figures import counted

HANDLE: Final = "ray.DeploymentResponse"
"""The awaited class in a call of another deployment (in ray.serve.handle), before its method."""

BATCH: Final = "serve.batch "
FUTURE: Final = "a future"

IN_THREAD: Final = ("to_thread", "threadpool", "run_sync", "executor")
"""What is awaited where a thread does the work has one of these in its name."""


def blocked_candidate(seen: Evidence) -> Candidate | None:
    """Find a loop that nearly all looks find in the app's own code, blocked or computing."""
    for name, replicas in seen.waits.of.items():
        looked_at = [look for look in replicas if look.ongoing > 0]
        shares = {look.pid: sum(share for _, share in look.loop) for look in looked_at}
        most = max(shares.values(), default=0.0)
        if most < limits.NEAR:
            continue
        lines: dict[str, float] = defaultdict(float)
        for line, share in (pair for look in replicas for pair in look.loop):
            lines[line] += share
        line = max(lines, key=lambda place: lines[place])
        many = sum(map(limits.NEAR.__le__, shares.values()))
        among = "" if many == len(shares) else f", in {many} of {len(shares)} replicas"
        short, looks = f"loop in {line}", f"{100 * most:.0f} % of the looks{among}"
        uses = seen.deployments.get(name, ())
        at = max(shares, key=lambda pid: shares[pid])
        its_use = [use for use in uses if use.pid == at] or uses
        busy = max((use.not_idle or use.level for use in its_use), default=0.0)
        if busy >= limits.WAIT_MOST * most:
            words = f"replica CPU: {line} in {looks}"
            return Candidate("replica CPU", most, _named(seen, name, words), short, name)
        words = f"replica loop blocked in {line}, {looks}"
        return Candidate("replica loop", most, _named(seen, name, words), short, name)
    return None


def differing_candidate(seen: Evidence) -> Candidate | None:
    """Find a replica that answers fewer requests than the others, each in a longer time."""
    for name, replicas in seen.waits.of.items():
        # One that had requests and answered none takes at least the time of the looks.
        all_ms = 1e3 * (seen.waits.seconds or 0.0)
        times = [look.mean_ms if look.served else (look.ongoing >= 1) * all_ms for look in replicas]
        known = [(look, ms) for look, ms in zip(replicas, times, strict=True) if ms]
        least = limits.FEWEST_REQUESTS
        enough = [at for at in known if round(at[0].served + at[0].ongoing) >= least]
        if len(known) < 2 or not enough:
            continue
        slow, slow_ms = max(enough, key=lambda at: at[1])
        others = [(look, ms) for look, ms in known if look is not slow]
        usual = statistics.median(ms for _, ms in others)
        served = statistics.median(look.served for look, _ in others)
        if slow_ms < limits.DIFFER * usual or slow.served * limits.DIFFER > served:
            continue
        takes = f"{'' if slow.served else 'more than '}{figure(slow_ms)} ms"
        words = (
            f"one of {len(known)} replicas, which takes {takes} a request "
            f"({slow.served:,} served), the other{'s' if others[1:] else ''} {figure(usual)} ms "
            f"({sum(other.served for other, _ in others):,} served)"
        )
        words, short = _named(seen, name, words), f"slow replica {takes}"
        return Candidate("slow replica", 1.0, words, short, name, pid=slow.pid)
    return None


def called_candidate(seen: Evidence) -> Candidate | None:
    """Find calls that wait for the deployment with the fullest slots, behind the front."""
    places = count_places(seen.waits.replicas).items()
    calls = sum(count for at, count in places if at.awaited.startswith(HANDLE))
    behind = {
        name: (sum(look.ongoing for look in looks), sum(look.max_ongoing or 0 for look in looks))
        for name, looks in seen.waits.of.items()
        if name != seen.front and any(look.served or look.ongoing for look in looks)
    }
    # A request in a deployment behind the front is in a call of it too, and no longer waits there.
    queued = calls - sum(held for held, _ in behind.values())
    full = {name: held / slots for name, (held, slots) in behind.items() if slots}
    if seen.front is None or not full:
        return None
    name = max(full, key=lambda deployment: full[deployment])
    held, slots = behind[name]
    # The router tries again only after 25 to 500 ms, so few slots are not always busy.
    if queued < 1.0 or queued + held < limits.FULL_SLOTS * slots:
        return None
    waiting = queued + held
    words = f"{counted(round(waiting), 'request')} for {counted(slots, 'slot')}"
    return slots_candidate(seen, name, waiting / slots, words)


def place_candidate(seen: Evidence) -> Candidate | None:
    """Find where most requests wait at the end of a chain of calls: a line, or a filling batch."""
    places = count_places(seen.waits.replicas).items()
    leaves = {at: count for at, count in places if not at.awaited.startswith(HANDLE)}
    requests = max(_ongoing(seen).values(), default=0.0)
    if not leaves or not requests:
        return None
    at = max(leaves, key=lambda leaf: leaves[leaf])
    share = min(1.0, leaves[at] / requests)
    if share < limits.WAIT_SHARE:
        return None
    if at.awaited.startswith(BATCH):
        return _batch(seen, at, leaves[at], share)
    wait, hint = _what(seen, at, leaves[at], requests), ""
    words = wait.figures
    if called := _calls(seen, at.deployment):
        words, hint = f"{words}, called {called}", CALL_HINT
    words = _named(seen, at.deployment, words)
    return replace(wait, level=share, figures=words, hint=hint or wait.hint)


def call_candidate(seen: Evidence) -> Candidate | None:
    """Find the line at which most requests wait for calls of another deployment.

    They are in no line of that, and the line is in the innermost deployment that calls. It has a
    hint if a request makes several."""
    caller, calls = _caller(seen)
    if caller is None:
        return None
    requests = max(_ongoing(seen).values())
    count = min(requests, calls)
    behind = [name for name in seen.waits.of if name not in (seen.front, caller.deployment)]
    if len(behind) > 1:  # one line may call any of them
        behind = [name for name in behind if _calls_made(seen, name).a_request >= limits.SEVERAL]
    of = behind[0] if len(behind) == 1 else ""
    method = caller.awaited.partition(" ")[2]
    known = [short_name(of), "" if not of and method == "__call__" else method]
    what = ".".join(filter(None, known)) or "another deployment"
    how = _calls(seen, of) or f"at {caller.line}"
    words = f"calls of {what} {how}, where {_part_of(count, requests)} wait"
    words, short = _named(seen, caller.deployment, words), f"wait in calls of {what} {how}"
    hint = CALL_HINT if _calls_made(seen, of).a_request >= limits.SEVERAL else ""
    return Candidate("app wait", count / requests, words, short, caller.deployment, hint=hint)


CALL_HINT: Final = (
    "each call takes the way through the router and back: calls at once (asyncio.gather), or one "
    "call with all arguments"
)


def _part_of(count: float, requests: float) -> str:
    """Describe a part of requests: `12 of 16 requests`; of about one `60 % of the requests`."""
    if round(requests) > 1:
        return f"{count:.0f} of {requests:.0f} requests"
    return f"{100 * min(1.0, count / requests):.0f} % of the requests"


def _ongoing(seen: Evidence) -> dict[str, float]:
    """Return the requests in each deployment; in a chain of calls each has the same ones."""
    parts = seen.waits.of.items()
    return {name: sum(replica.ongoing for replica in looks) for name, looks in parts}


def _caller(seen: Evidence) -> tuple[WaitPlace | None, float]:
    """Return where most requests wait for calls of others, and how many.

    It is the innermost deployment that has half of all requests there."""
    within = _ongoing(seen)
    least = limits.WAIT_SHARE * max(within.values(), default=0.0)
    callers: list[tuple[WaitPlace, float]] = []
    for replicas in seen.waits.of.values():
        places = count_places(replicas).items()
        calls = [(at, count) for at, count in places if at.awaited.startswith(HANDLE)]
        most = max((count for _, count in calls), default=0.0)
        callers += [call for call in calls if call[1] == most >= least > 0][:1]
    return min(callers, key=lambda top: within[top[0].deployment], default=(None, 0.0))


def _calls_made(seen: Evidence, name: str) -> CallFacts:
    """Return the calls of a deployment that a request makes; 0 if that was not seen."""
    known = (replica.calls for replica in seen.waits.of.get(name, ()) if replica.calls)
    return next(known, CallFacts(0.0, 0.0))


def _calls(seen: Evidence, name: str) -> str:
    """Describe how requests call a deployment that they call several times; else empty."""
    calls = _calls_made(seen, name)
    caller, _ = _caller(seen)
    if calls.a_request < limits.SEVERAL or caller is None or caller.deployment == name:
        return ""
    in_turn = calls.at_once <= limits.IN_SEQUENCE
    how = "in sequence" if in_turn else f"{figure(calls.at_once)} at once"
    return f"{how}, {figure(calls.a_request)} a request, at {caller.line}"


def waits_in_turn(seen: Evidence) -> bool:
    """Return whether requests wait for one another inside the replicas, and not only for a slot.

    Inside, too, they take several times as long as one alone. By Little's law, since with direct
    ingress Serve's own latency includes the wait for a slot."""
    alone, seconds = seen.waits.alone_ms, seen.waits.seconds
    inside = [  # in a replica without answers they take longer than the look
        1e3 * seconds * (look.ongoing / look.served if look.served else min(1.0, look.ongoing))
        for look in seen.waits.replicas
        if seconds
    ]
    return bool(alone and inside) and max(inside) >= limits.QUEUES * (alone or 0.0)


def measure_filling(queues: Sequence[BatchQueueFacts]) -> float:
    """Return how often batches were seen to wait for more requests; 0: seldom, or they are full."""
    waiting = statistics.fmean(queue.waiting for queue in queues)
    running = statistics.fmean(queue.running for queue in queues)
    held = statistics.fmean(queue.held for queue in queues)
    is_full = held >= limits.BATCH_FULL * max(queue.most for queue in queues)
    return waiting if waiting > running and waiting >= limits.WAIT_SHARE and not is_full else 0.0


def _batch(seen: Evidence, at: WaitPlace, count: float, share: float) -> Candidate | None:
    """Describe requests that wait in `serve.batch`: for others to come, or for its function."""
    function = at.awaited.removeprefix(BATCH).rpartition(".")[2]
    looks = seen.waits.of[at.deployment]
    batches = [look.batches[function] for look in looks if function in look.batches]
    if not batches:
        return None
    most, wait_s = max(look.most for look in batches), max(look.wait_s for look in batches)
    held = statistics.fmean(look.held for look in batches)
    name, short = at.deployment, f"batch function {function}"
    if ended := next((queue.ended for queue in batches if queue.ended), None):
        where = f" at {at.line}" if at.line else ""
        words = (
            f"the batch queue of {function}, in which {count:.0f} requests wait{where}: Serve's "
            f"loop that makes its batches ended with {ended}"
        )
        hint = (
            "an error in batch_size_fn ends that loop, and nothing starts it again while the "
            "replica counts as healthy: catch it there, and restart the replica"
        )
        return Candidate("app wait", share, _named(seen, name, words), short, name, hint=hint)
    if waiting := measure_filling(batches):
        words = (
            f"batch wait: batches of {function} wait {figure(1e3 * wait_s)} ms for more, "
            f"about {held:.0f} of {most:.0f} in one"
        )
        short = f"wait for batches of {function} to fill"
        named, hint = _named(seen, name, words), HINTS["batch wait"]
        return Candidate("batch wait", waiting, named, short, name, hint=hint)
    words = f"the batch function {function}, for which {count:.0f} requests wait"
    if inside := count_places(seen.waits.of[at.deployment], "own"):
        words += f", itself at {max(inside, key=lambda place: inside[place]).line}"
    short = f"wait for the {short}"
    return Candidate("app wait", share, _named(seen, name, words), short, name)


def _what(seen: Evidence, at: WaitPlace, count: float, requests: float) -> Candidate:
    """Describe what requests (`count`) wait for at a place."""

    def wait(words: str, short: str, pool: bool = False, hint: str = "") -> Candidate:
        return Candidate("app wait", 1.0, words, short, at.deployment, pool=pool, hint=hint)

    replicas, who = seen.waits.of[at.deployment], _part_of(count, requests)
    threads, where = count_places(replicas, "threads"), f" at {at.line}" if at.line else ""
    future, in_thread = at.awaited == FUTURE, any(word in at.awaited for word in IN_THREAD)
    short = f"wait {'for' if future else 'in'} {at.awaited}{where}"
    # Of a sync method, say, the line at which its threads are: whether it computes is not seen.
    top = max(threads, key=lambda place: threads[place], default=None)
    most = in_thread and top is not None and threads[top] >= limits.WAIT_SHARE * count
    line = top.line if most and top is not None else ""
    if line and not at.line:
        short = f"are at {line}"
    pools = [item for look in replicas for item in look.pools.items() if future or in_thread]
    if full := [(name, pool) for name, pool in pools if pool.threads and pool.full >= limits.NEAR]:
        names, size = {name for name, _ in full}, sum(pool.threads for _, pool in full)
        named = [place for place in threads if place.awaited in names]
        busy = f" ({max(named, key=lambda place: threads[place]).line})" if named else ""
        words = f"all in use by {who}"
        if count >= limits.FULL_SLOTS * size:
            words = f"for which {who} wait"
        words = f"{counted(size, 'thread')} of a pool{busy}, {words}{where}"
        always = any(pool.full >= limits.CERTAIN for _, pool in full)
        return wait(words, short, always, _pool_hint(seen, full[0][1]))
    if line:
        begun = f", from {at.line}" if at.line else ""
        return wait(f"{line} in a thread, where {who} are{begun}", short)
    if not future:
        return wait(f"{at.awaited}{where}, where {who} wait", short)
    # A task or thread of the app that is always at one line probably sets the future.
    places = {**count_places(replicas, "own"), **threads}
    setter = max(places, key=lambda place: places[place], default=None)
    words = f"a future{where}, for which {who} wait"
    if setter is not None and places[setter] >= limits.WAIT_SHARE * len(replicas):
        words += f" while {setter.function} is at {setter.line}"
    return wait(words, short)


def _pool_hint(seen: Evidence, pool: PoolFacts) -> str:
    """Say what a larger num_cpus gives a full pool of Serve; empty for others and the largest."""
    if pool.num_cpus is None or pool.threads >= limits.SERVE_THREADS:
        return ""
    cpus = 4 * math.ceil(max(pool.num_cpus, 1.0))
    threads, alone_ms = min(limits.SERVE_THREADS, cpus + 4), seen.waits.alone_ms
    rate = seen.offered.rate * threads / pool.threads
    if alone_ms and seen.offered.in_flight:
        rate = min(rate, 1e3 * seen.offered.in_flight / alone_ms)
    return (
        f"Serve makes this pool with ceil(num_cpus) + 4 threads: num_cpus={cpus} gives {threads}, "
        f"and up to {figure(rate)} requests/s; or a larger pool of your own"
    )


def _named(seen: Evidence, name: str, words: str) -> str:
    """Put the name of the deployment before the words, if there are several."""
    return f"{short_name(name)}: {words}" if len(seen.waits.of) > 1 else words
