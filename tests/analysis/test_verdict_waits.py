import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest
from msgspec import structs

from serve_bench.analysis.verdict import limited_by, worth_a_look
from serve_bench.core.facts import TrialUsage
from serve_bench.core.load_result import ClientVerdict
from serve_bench.core.result import JsonObject, Trial
from tests.cases import cases
from tests.records import cell, changed, launch
from tests.verdict_trials import IDLE, bound, expect, measured, process, usage, with_metric


def replica(*places: tuple[str, str, float], name: str = "Shop", **more: Any) -> dict[str, Any]:
    """Sample a replica; places are what is awaited, the line, and how many requests."""
    waits: list[list[Any]] = [[what, line, f"{name}.work", count] for what, line, count in places]
    inside = sum(count for *_, count in places)
    return {
        **{"pid": 2, "app": "app", "deployment": name, "looks": 36, "max_ongoing": 1000},
        **{"ongoing": inside, "served": 60, "mean_ms": 590.0},
        **{"places": waits, "own": [], "loop": [], "threads": [], "pools": {}, "batches": {}},
        **more,
    }


def seen(*replicas: dict[str, Any], alone_ms: float = 40.0, connections: int = 20) -> Trial:
    """Make a row of an idle server, and what was seen in its replicas in a further load."""
    waits = {"p50_ms": 630.0, "alone_p50_ms": alone_ms, "seconds": 1.9, "replicas": [*replicas]}
    slots = {str(replica["deployment"]): int(replica["max_ongoing"]) for replica in replicas}
    uses = process(1, "proxy", 10, wait=0.5), process(2, "replica", 8, wait=0.5, of="app:Shop")
    trial = measured(connections, 1000 * connections / 630, usage(*uses, host=30), of={})
    return changed(trial, waits=waits, slots=slots)


def sleep(count: float, line: int = 5) -> tuple[str, str, float]:
    return "asyncio.sleep", f"shop.py:{line}", count


def lock(count: float, line: int = 5) -> tuple[str, str, float]:
    return "asyncio.Lock.acquire", f"shop.py:{line}", count


def used(host: float, proxy: float, *cpus: float, of: Sequence[str] = ("app:Shop",)) -> JsonObject:
    """Name what a proxy and replicas use, % of a core."""
    names = (*of, *[of[-1]] * len(cpus))
    uses = [process(at, "replica", cpu, wait=1, of=names[at - 2]) for at, cpu in enumerate(cpus, 2)]
    return usage(process(1, "proxy", proxy, wait=1), *uses, host=host)


LOCK = replica(lock(18.6, 31), sleep(1, 32))


def test_the_line_at_which_requests_wait_is_named() -> None:
    verdict = expect(seen(LOCK), "app wait", "medium", "shop.py:31, where 19 of 20 requests wait (")
    assert verdict.reasons == ("requests wait for one another: looked at, p50 630 ms, alone 40",)
    few = replica(lock(0.5, 31), sleep(0.4, 32))
    expect(seen(few), "app wait", words="Lock.acquire at shop.py:31, where 56 % of the requests")
    # None is where requests wait in many, or were hardly looked at.
    spread = replica(*((f"asyncio.{place}", f"shop.py:{place}", 4.0) for place in range(5)))
    for unclear in (spread, {**LOCK, "looks": 4}):
        expect(seen(unclear), "app wait", "low", "a wait inside the app, CPU idle (")


def test_requests_that_take_no_longer_than_one_alone_are_offered_load() -> None:
    """Also in the threads of a pool that has more of them; not where all are in use."""
    asleep = seen(replica(sleep(20.0, 9)), alone_ms=600)
    line = "whose requests wait in asyncio.sleep at shop.py:9 ("
    expect(asleep, "offered load", "medium", f"offered load, 20 connections, {line}")
    expect(asleep, "offered load", words="alone 600): more clients bring more requests")
    single = seen(replica(sleep(0.95, 9)), alone_ms=600, connections=1)
    expect(single, "offered load", words=f"offered load, 1 connection, {line}")
    for full, cause in ((0.0, "offered load"), (1.0, "app wait")):
        place, thread = ("anyio.run_sync", "", 20.0), (POOL, "shop.py:7", "chunks", 20.0)
        trial = seen(pooled(place, *thread, threads=20, full=full), alone_ms=600)
        verdict = expect(trial, cause, words="shop.py:7")
        assert ("more clients bring more" in verdict.text) == (not full)
    # A fifth of them wait elsewhere: for a permit, say.
    expect(seen(replica(sleep(15.0, 9), ("a", "shop.py:8", 5.0)), alone_ms=600), "app wait")


POOL: Final = "AnyIO worker thread"
FULL_POOL: Final = {"threads": 1, "full": 1.0}
THREAD: Final = ("anyio.to_thread.run_sync", "", 40.0)
SYNC: Final = ("anyio.AsyncIOBackend.run_sync_in_worker_thread", "", 8.0)


def pooled(
    place: tuple[str, str, float], *thread: Any, threads: int, full: float
) -> dict[str, Any]:
    """Place requests in a pool of so many threads, of which one more is seen at a line."""
    lines = [[*thread]] if thread else []
    pool = {"threads": threads, "full": full}
    return replica(place, threads=lines, pools={POOL: pool})


ENGINE: Final = [["asyncio.sleep", "shop.py:4", "Shop.engine", 1.0]]


@cases(
    "facts, words",
    (
        replica(("a future", "shop.py:9", 20.0), pools={"P-1": FULL_POOL}),
        "1 thread of a pool, for which 20 of 20 requests wait at shop.py:9",
    ),
    (
        replica(("a future", "shop.py:9", 15.0), own=ENGINE),
        "a future at shop.py:9, for which 15 of 15 requests wait while Shop.engine is at shop.py:4",
    ),
    (
        pooled(THREAD, POOL, "shop.py:7", "read", 4.0, threads=4, full=0.9),
        "4 threads of a pool (shop.py:7), for which 40 of 40 requests wait",
    ),
    (  # a sync method: its line is in a thread for each request
        pooled(SYNC, POOL, "shop.py:29", "Shop.rank", 7.0, threads=9, full=0.3),
        "shop.py:29 in a thread, where 8 of 8 requests are",
    ),
    (  # a thread beside them is no reason
        pooled(SYNC, "worker", "shop.py:3", "tick", 1.0, threads=9, full=0.3),
        "anyio.AsyncIOBackend.run_sync_in_worker_thread, where 8 of 8 requests wait",
    ),
)
def test_threads_and_tasks_that_are_waited_for(facts: dict[str, Any], words: str) -> None:
    verdict = expect(seen(facts, connections=int(facts["ongoing"])), "app wait")
    assert verdict.figures.startswith(words)


@cases(
    "cpus, threads, gives",
    (0.5, 5, "ceil(num_cpus) + 4 threads: num_cpus=4 gives 8, and up to 50.8 requests/s"),
    (None, 5, "more of what is awaited"),  # a pool of the app's own
    (30.0, 32, "more of what is awaited"),  # Serve makes no larger one
)
def test_what_more_cpus_give_a_full_pool(cpus: float | None, threads: int, gives: str) -> None:
    pool = {"threads": threads, "full": 1.0, "num_cpus": cpus}
    whole = replica(("asyncio.to_thread", "shop.py:7", 20.0), pools={POOL: pool})
    assert gives in expect(seen(whole), "app wait", words=f"{threads} threads of a pool").hint


def test_a_blocked_loop_is_told_with_its_line_on_a_single_row() -> None:
    blocked = replica(("a future", "", 4.7), ongoing=14.3, loop=[["shop.py:64", 1.0]])
    expect(seen(blocked), "replica loop", "high", "blocked in shop.py:64, 100 % of the looks (")
    expect(seen(blocked, connections=1, alone_ms=630), "replica loop", "medium")
    expect(seen(replica(sleep(20.0), loop=[["shop.py:64", 0.5]])), "app wait")
    # One that sleeps beside one that computes.
    sleeps = replica(("a future", "", 2.0), pid=2, loop=[["shop.py:5", 1.0]])
    works = replica(("a future", "", 2.0), pid=3, loop=[["shop.py:7", 0.6]])
    uses = [process(pid, "replica", cpu, wait=1, of="app:Shop") for pid, cpu in ((2, 10), (3, 79))]
    both = changed(seen(sleeps, works), usage=usage(*uses, host=110))
    expect(both, "replica loop", words="in 1 of 2 replicas")


def test_a_loop_that_computes_is_cpu_of_its_replica() -> None:
    helper = replica(("a future", "", 2.0), name="Helper", loop=[["shop.py:64", 0.86]])
    front = replica(("ray.DeploymentResponse.__await__", "shop.py:9", 7.0))
    for cpu, cause in ((79, "downstream deployment"), (20, "replica loop")):
        uses = used(140, 30, 20, cpu, of=("app:Shop", "app:Helper"))
        trial = changed(seen(front, helper, connections=8), usage=uses)
        expect(trial, cause, words="shop.py:64", front="app:Shop")


BATCH: Final = {"most": 64, "wait_s": 0.2, "waiting": 0.9, "running": 0.0, "held": 8.5}


@cases(
    "changes, cause, words",
    ({}, "batch wait", "predict wait 200 ms for more, about 8 of 64 in one (medium"),
    ({"waiting": 0.0, "running": 1.0, "held": 64}, "app wait", "8 requests wait, itself at shop"),
    ({"ended": "KeyError: 'size'"}, "app wait", "makes its batches ended with KeyError: 'size' ("),
)
def test_a_batch_function_of_an_own_app(changes: dict[str, Any], cause: str, words: str) -> None:
    place = ("serve.batch Shop.predict", "shop.py:109", 8.5)
    sleeps = [["asyncio.sleep", "shop.py:108", "Shop.predict", 1.0]] if "running" in changes else []
    facts = replica(place, batches={"predict": {**BATCH, **changes}}, own=sleeps)
    verdict = expect(seen(facts, connections=10), cause, words=words)
    assert ("batch_size_fn" in verdict.hint) == ("ended" in changes)


CALL = "ray.DeploymentResponse get"


def tiers(calls: float, outside: float, helper: dict[str, Any], cpu: float = 8) -> Trial:
    """Make a front of which so many requests are in a call of the helper, and so many elsewhere."""
    front = replica((CALL, "shop.py:5", calls), sleep(outside, 6), name="Front")
    uses = used(22 + cpu, 9, cpu, 3, of=("app:Front", "app:Helper"))
    return changed(seen(front, helper), usage=uses)


def test_slots_of_a_helper_limit_only_where_requests_wait_for_them() -> None:
    helper = replica(sleep(1.9, 40), name="Helper", max_ongoing=2)
    words = "downstream Helper: concurrency limit, 20 requests for 2 slots ("
    full, cause = tiers(19.9, 0.0, helper), "downstream deployment"
    expect(full, cause, words=words, front="Front", behind="Helper")
    for held in (0.3, 0.0):  # looks may miss all of 60 requests of 10 ms in 1.9 s
        brief = {**helper, "ongoing": held, "mean_ms": 10.0}
        words = "router back-off, 20 requests for 2 slots, idle 84 %"
        assert words in limited_by(tiers(19.9, 0.0, brief), "Front").figures
    helper = {**helper, "ongoing": 0.3, "places": [["asyncio.sleep", "shop.py:40", "H.work", 0.3]]}
    rare, words = tiers(0.4, 19.5, helper), "asyncio.sleep at shop.py:6, where 20 of 20 requests"
    expect(rare, "app wait", words=words, front="Front", behind="Front")
    # Nothing was looked at: the slots may be the limit, and no more.
    assert limited_by(changed(rare, waits={}), "Front").confidence == "low"
    # Full slots are the limit unless requests wait for one another inside.
    slots = replica(sleep(2.0), max_ongoing=2, mean_ms=52.0)
    expect(seen(slots, alone_ms=50), "concurrency limit", words="20 requests for 2 s", front="Shop")
    locked = replica(lock(5.0), max_ongoing=6, mean_ms=240.0)
    expect(seen(locked, alone_ms=40), "app wait", front="Shop")


def test_a_wait_behind_a_call_is_named_where_it_is() -> None:
    helper = replica(lock(19.0, 40), name="Helper")
    words = "Helper: asyncio.Lock.acquire at shop.py:40, where 19 of 20 requests wait"
    once = tiers(20.0, 0.0, helper)
    expect(once, "app wait", words=f"{words} (", front="Front", behind="Helper")
    # The lock is taken several times a request.
    often = tiers(20.0, 0.0, {**helper, "calls": {"a_request": 4.0, "at_once": 1.0}})
    words = f"{words}, called in sequence, 4 a request, at shop.py:5 ("
    expect(often, "app wait", words=words, front="Front")


@cases(
    "calls, words",
    ({"a_request": 20.0, "at_once": 1.0}, "in sequence, 20 a request, at shop.py:5"),
    ({"a_request": 20.0, "at_once": 7.5}, "7.5 at once, 20 a request, at shop.py:5"),
    ({"a_request": 1.0, "at_once": 1.0}, "at shop.py:5"),
    (None, "at shop.py:5"),
)
def test_calls_that_hold_requests(calls: dict[str, float] | None, words: str) -> None:
    """Most of the time goes to the way there and back: 20 requests are far from 100 slots."""
    place = sleep(6.0, 40)
    helper = replica(place, name="Helper", max_ongoing=100, **({"calls": calls} if calls else {}))
    whole = f"Front: calls of Helper.get {words}, where 20 of 20 requests wait ("
    trial = tiers(20.0, 0.0, helper)
    verdict = expect(trial, "app wait", words=whole, front="Front", behind="Front")
    assert ("asyncio.gather" in verdict.hint) == (calls is not None and calls["a_request"] > 1)
    # Which of two deployments a line calls is not seen, and `__call__` is no word of the user's.
    called = replica(("ray.DeploymentResponse __call__", "shop.py:5", 20.0), name="Front")
    either = replica(place, name="Post", max_ongoing=100)
    both = replace(seen(called, helper, either), usage=trial.usage)
    unknown = "calls of another deployment at shop.py:5" in limited_by(both, "Front").figures
    assert unknown == ("a request" not in words)


@cases(
    "cpu, alone_ms, calls, figures",
    (82, 30, 20.0, "Front: replica CPU 82 % of a core, while most requests wait in {calls}"),
    (82, 500, 20.0, "Front: {calls}, where 20 of 20 requests wait"),  # as long as alone
    (92, 500, 20.0, "Front: replica CPU 92 % of a core, while most requests wait in {calls}"),
    (97, 30, 20.0, "Front: replica CPU 97 % of a core, while most requests wait in {calls}"),
    (82, 30, 1.0, "Front: replica CPU 82 % of a core"),
)
def test_calls_in_sequence_and_cpu(cpu: float, alone_ms: float, calls: float, figures: str) -> None:
    """The CPU is what the calls cost, unless a request takes as long where nothing else runs."""
    place, several = sleep(2.0, 40), {"a_request": calls, "at_once": 1.0}
    helper = replica(place, name="Helper", max_ongoing=100, calls=several)
    trial = tiers(20.0, 0.0, helper, cpu)
    trial = changed(trial, waits=structs.replace(trial.waits, alone_p50_ms=alone_ms))
    verdict = limited_by(trial, "Front")
    words = "calls of Helper.get in sequence, 20 a request, at shop.py:5"
    assert verdict.figures == figures.format(calls=words)
    assert ("asyncio.gather" in verdict.hint) == (calls > 1)
    assert verdict.confidence == {82.0: "low", 92.0: "medium", 97.0: "high"}[cpu]


def test_a_helper_with_few_slots_to_which_few_requests_go_is_not_blamed() -> None:
    """The front calls A always, where a lock is held, and B with its two slots now and then."""
    calls = replica((CALL, "shop.py:5", 20.0), name="Front")
    locked = replica(lock(19.3, 30), name="A", max_ongoing=100)
    rare = replica(sleep(0.3, 40), name="B", max_ongoing=2, served=1)
    uses = used(30, 9, 8, 3, 3, of=("app:Front", "app:A", "app:B"))
    full, free = {**rare, "ongoing": 1.9, "served": 30}, {**locked, "ongoing": 2.0}
    idle = {**full, "ongoing": 0.4, "served": 6, "mean_ms": 20.0}
    for a, b, behind, words in (
        (locked, rare, "A", "asyncio.Lock.acquire at shop.py:30, where"),
        # Where they do wait for a slot, it is the deployment whose slots are full.
        (free, full, "B", "downstream B: concurrency limit, 18 requests for 2 slots ("),
        # Slots of a helper serve calls: how many of them a request makes is not said.
        (free, idle, "B", "(never idle: about 100 calls/s) ("),
    ):
        trial = changed(seen(calls, a, b), usage=uses)
        cause = "app wait" if behind == "A" else "downstream deployment"
        expect(trial, cause, words=words, front="Front", behind=behind)


@cases(
    "held, served, haproxy, idle",
    (0.1, 15, False, 95),
    (0.9, 165, False, 48),  # 11 ms between two: two tasks try, each 25 ms after its last try
    (1.9, 300, False, None),
    (1.0, 190, False, None),  # handed over within 8 ms
    (0.1, 15, True, None),  # requests pass no router
)
def test_slots_left_idle(held: float, served: int, haproxy: bool, idle: int | None) -> None:
    place = sleep(held)
    trial = seen(replica(place, max_ongoing=2, served=served, mean_ms=12.0), connections=30)
    if haproxy:
        uses = used(30, 10, 8)["processes"]
        trial = changed(trial, usage=usage(*uses, process(4, "haproxy", 5, wait=1), host=30))
    words = "30 requests for 2 slots"
    if idle:
        words += f", idle {idle} % of the time while requests waited"
        words += " (never idle: about 170 requests/s)"
    cause = "router back-off" if idle else "concurrency limit"
    verdict = expect(trial, cause, "high", f"{cause}, {words} (high", front="Shop")
    assert ("Shop.request_router_config.max_backoff_s" in verdict.hint) is bool(idle)
    assert idle is None or verdict.idle == pytest.approx(idle, abs=1)
    sleeps = "router sleeps up to 500 ms between its tries" in find_timer(trial, "Shop")
    assert sleeps is bool(idle)
    # A client that never rests may leave them idle; its own part of the latency is no wait for one.
    assert not find_timer(changed(trial, client=bound(0.97, 0.7)), "Shop")
    adds = ClientVerdict(False, (), added_ns=95e7, mean_latency_ns=1e9)
    adding = changed(trial, client=structs.replace(trial.client, verdict=adds))
    assert limited_by(adding, "Shop").cause == "app wait"
    rare = changed(trial, waits=structs.replace(trial.waits, seconds=99.0))
    assert not find_timer(rare, "Shop")  # slots are idle for longer than it sleeps


def test_a_replica_that_is_slower_than_the_others() -> None:
    place, short = sleep(5.0), sleep(1.0)
    slow, fast = replica(place, mean_ms=101.0, served=60), replica(place, mean_ms=6.0, served=900)
    words = "takes 101 ms a request (60 served), the other 6 ms (900 served) ("
    expect(seen(slow, fast), "slow replica", "medium", words, front="Shop")
    # One that has more requests at once answers as many: it is no slower.
    expect(seen(slow, {**fast, "served": 70}), "app wait", front="Shop")
    # One that answers nothing while it is looked at; where neither does, none is slower.
    slow = replica(place, max_ongoing=5, mean_ms=None, served=0)
    fast = replica(place, max_ongoing=5, mean_ms=100.0, served=90)
    expect(seen(slow, fast), "slow replica", words="takes more than 1,900 ms", front="Shop")
    # One request that took long is no slow replica.
    rare, usual = replica(short, mean_ms=1000.0, served=1), replica(short, mean_ms=100.0, served=8)
    for trial in (seen(slow, {**fast, "served": 0}), seen(rare, usual, connections=2)):
        assert limited_by(trial, "Shop").cause != "slow replica"
    # One that computes is slow by its core.
    fast = replica(sleep(5.0, 9), pid=2, served=57, mean_ms=105.0)
    hot = replica(("a future", "", 4.0), pid=3, served=5, mean_ms=829.0)
    uses = [process(1, "proxy", 20, wait=1), process(2, "replica", 12, wait=1, of="app:Shop")]
    for wait, of, cause in ((14, "app:Shop", "replica loop"), (1, "app:Other", "slow replica")):
        used = usage(*uses, process(3, "replica", 84, wait=wait, of=of), host=180)
        expect(changed(seen(fast, hot, alone_ms=100), usage=used), cause)


def test_refused_requests_are_slots_and_queue() -> None:
    trial = measured(30, 20, IDLE, of={}, failed=9000)
    counts = replace(trial.counts, failed={"rejected": 9000})
    limits = {"NoOp": {"replicas": 1, "each": 2, "queued": 5}}
    full = changed(trial, counts=counts, slots={"NoOp": 2}, limits=limits)
    full = replace(full, client=structs.replace(full.client, status_codes={429: 9000}))
    words = "concurrency limit, 30 clients for 2 slots and a queue of 5: 97.8 % refused (429), 20 r"
    verdict = expect(full, "concurrency limit", "medium", words, front="NoOp")
    assert "--expect-status 200,429" in verdict.hint
    rates = {**full.metrics, "throughput": replace(full.metrics["throughput"], windows=(0.0,))}
    none = replace(full, counts=replace(counts, sent=9000, completed=0), metrics=rates)
    expect(none, "concurrency limit", words="100 % refused (429), 0 requests/s", front="NoOp")
    # A 503 of an app without such a queue is the app's own.
    expect(replace(full, limits={}), "unclear", front="NoOp")


def scaled(*ran: int) -> Trial:
    """Make a row of a deployment of which Serve runs so many replicas in turn, of 2 slots each."""
    limits = {"Shop": {"replicas": 1, "each": 2, "queued": -1, "most": 4, "ran": [*ran]}}
    slots = replica(sleep(2.0), max_ongoing=2, mean_ms=50.0)
    return changed(seen(*ran[-1] * [slots]), limits=limits, slots={"Shop": 2})


def test_of_a_deployment_that_serve_scales_the_replicas_are_told() -> None:
    words = "concurrency limit, 20 requests for 2 slots (1 replica, which Serve scales up to 4) ("
    verdict = expect(scaled(1), "concurrency limit", words=words, front="Shop")
    for hint in ("timeline", "Shop.autoscaling_config.min_replicas=4 fixes its replicas, if so"):
        assert hint in verdict.hint
    later = replace(scaled(1), waits=scaled(3).waits)  # it had more then
    then = expect(later, "concurrency limit", words=words, front="Shop")
    assert "3 replicas of Shop ran then" in str(then.unseen)
    # It has all replicas that it may have: more slots or more replicas are what is left.
    assert "max_ongoing_requests (async" in limited_by(scaled(4), "Shop").hint
    words = "unclear: Shop went from 1 to 4 replicas during the row: not a steady state"
    for ran in ((1, 3, 4), (4, 1, 4)):
        assert "timeline" in expect(scaled(*ran), "unclear", words=words, front="Shop").hint
        assert not worth_a_look(scaled(*ran), "Shop")


def two_apps(*replicas: dict[str, Any], busy: float = 8) -> Trial:
    """Make a row on `b`, whose ingress has the same name as that of `a`, of a config file."""
    uses = used(busy + 30, 9, 3, busy, of=("a:Ingress", "b:Ingress"))
    trial = changed(seen(*replicas, connections=8), slots={"Ingress": 5}, usage=uses)
    return changed(trial, limits={"Ingress": {"replicas": 1, "each": 5, "queued": -1}})


def test_deployments_of_one_name_in_two_applications_are_two() -> None:
    burns = changed(two_apps(busy=97), waits={})
    expect(burns, "replica CPU", words="Ingress: replica CPU 97 % of a core (", front="b:Ingress")
    # The replica of the other application is none that was added.
    place = sleep(5.0)
    holds = replica(place, name="Ingress", app="b", max_ongoing=5, served=100)
    both = two_apps(replica(name="Ingress", app="a", served=0), holds)
    for trial in (both, changed(both, waits={})):
        words = "Ingress: concurrency limit, 8 requests for 5 slots ("
        expect(trial, "concurrency limit", words=words, front="b:Ingress")
    # Nor is it the faster one of two.
    slow = replica(place, name="Ingress", app="b", mean_ms=101.0, served=60)
    other = replica(name="Ingress", app="a", mean_ms=6.0, served=900)
    assert limited_by(two_apps(slow, other), "b:Ingress").cause != "slow replica"
    expect(two_apps(slow, {**other, "app": "b"}), "slow replica", front="b:Ingress")


def test_a_full_host_limits_nothing_while_all_on_the_way_rest() -> None:
    """Others fill the cores; what is on the way, or a late client, rests for half of the time."""

    def host_of(wait: float, client: dict[str, Any] | None = None) -> Trial:
        processes = process(1, "proxy", 20, wait=wait), process(2, "replica", 15, wait=wait)
        return measured(20, 32, usage(*processes, host=200), of={}, client=client)

    expect(host_of(30), "app wait")
    expect(host_of(30, bound(0.45, 0.44, "responses waited in the client")), "app wait")
    expect(host_of(75), "host CPU", "high")


def crowded(*replicas: dict[str, Any], alone_ms: float, others: float = 30) -> Trial:
    """Make a row of two cores, as planted, with a third of a core used by another program.

    A sync endpoint sleeps for 0.5 s, in a pool with a thread for each request; `replicas`: what a
    look saw."""
    proxy = process(1, "proxy", 77, wait=144, thread=20, thread_wait=44)
    shop = process(2, "replica", 80, wait=187, thread=25, thread_wait=54, of="app:Shop")
    others_used = {"program": "python x.py", "pid": 7, "processes": 1, "cpu_percent": others}
    programs = {"others": {"typical_percent": others, "programs": [others_used]}}
    uses = usage(proxy, shop, host=200) | programs
    trial = replace(measured(120, 200, uses, of={}, latency_ms=610), slots={"Shop": 500})
    waits = {"p50_ms": 610.0, "alone_p50_ms": alone_ms, "seconds": 1.9, "replicas": [*replicas]}
    return changed(trial, waits=waits if replicas else {})


def test_a_wait_that_is_the_larger_part_comes_before_a_full_host() -> None:
    blind = crowded(alone_ms=515)
    assert limited_by(blind).cause != "app wait" and worth_a_look(blind)
    assert limited_by(blind).confidence == "low"
    sleeps = replica(("anyio.to_thread.run_sync", "shop.py:9", 100.0))
    locked = replica(lock(100.0, 9))
    for seen_, alone_ms in ((sleeps, 515), (locked, 100)):
        verdict = expect(crowded(seen_, alone_ms=alone_ms), "app wait", "low", "shop.py:9")
        assert verdict.runner_up == "host 200 of 200 %"
    # A slot that is idle waits for the router, or for a CPU where the proxy rests less.
    idle = replica(sleep(0.4, 9), max_ongoing=1, served=60, mean_ms=5.0)
    behind = replace(crowded(idle, alone_ms=25), slots={"Shop": 1})
    expect(behind, "replica CPU", "low")
    for waited, sure in ((35, "high"), (45, "low")):
        proxy = process(1, "proxy", 20, wait=90, thread=20, thread_wait=waited)
        rests = changed(behind, usage=usage(proxy, used(0, 0, 5)["processes"][1], host=200))
        expect(rests, "router back-off", sure)
        assert bool(find_timer(rests)) == (sure == "high")
    # A request alone takes no longer than it runs and waits for a CPU.
    expect(crowded(locked, alone_ms=25), "replica CPU")


def test_a_host_is_the_limit_for_sure_only_if_cpu_explains_the_latency() -> None:
    """A program takes most of both cores; the proxy is asleep for a fifth of the time, or never."""
    for thread_wait, sure in ((45, "medium"), (65, "high")):
        proxy = process(1, "proxy", 30, wait=150, thread=30, thread_wait=thread_wait + 5)
        other = process(2, "replica", 25, wait=70, thread=25, thread_wait=30)
        expect(measured(100, 200, usage(proxy, other, host=200), of={}), "host CPU", sure)
    named = {"program": "python x.py", "pid": 7, "processes": 1, "cpu_percent": 120.0}
    used = usage(process(1, "proxy", 20, wait=75), host=200)
    others = {"others": {"typical_percent": 120.0, "programs": [named]}}
    words = "host CPU 200 of 200 %, 180 % by others; known of them: python x.py (pid 7) used 12"
    expect(measured(20, 32, used | others, of={}), "host CPU", words=words)


def busy(cpu: float, *replicas: dict[str, Any], alone_ms: float) -> Trial:
    return changed(seen(*replicas, alone_ms=alone_ms), usage=used(140, cpu, 20))


def test_a_cpu_that_rests_at_times_gives_way_to_what_requests_are_seen_to_wait_for() -> None:
    expect(busy(93, ASLEEP, alone_ms=560), "app wait", "low", "next limit: proxy CPU 93 %")
    # So it does to batches at work.
    batch = {"waiting": 0.1, "running": 0.87, "most": 16, "wait_s": 0.01, "held": 16}
    place = ("serve.batch Shop.rank", "shop.py:9", 12.0)
    at_work = replica(place, batches={"rank": batch}, own=[["asyncio.sleep", "shop.py:7", "r", 1]])
    expect(busy(85, at_work, alone_ms=200), "app wait", "low", "rank, for which 12 requests wait")
    expect(busy(85, at_work, alone_ms=30), "proxy CPU")


SLEEP: Final = sleep(5.0, 9)
HELD: Final = ("anyio.to_thread.run_sync", "shop.py:9", 20.0)


def burning(cpu: float, facts: dict[str, Any], alone_ms: float) -> Trial:
    full = process(2, "replica", cpu, wait=1, of="app:Shop")
    return changed(seen(facts, alone_ms=alone_ms), usage=usage(full, host=140))


def long_look(facts: dict[str, Any]) -> Trial:
    """Take a look of 5 s at requests that take 24 s."""
    trial = seen(facts, alone_ms=6000)
    return changed(trial, waits=structs.replace(trial.waits, seconds=5.0, p50_ms=24000))


ASLEEP: Final = replica(sleep(19.0, 9))
POLLS: Final = replica(SLEEP, pools={"P-1": FULL_POOL})
LOOPS: Final = replica(("a future", "shop.py:9", 2.0), loop=[["shop.py:9", 0.86]])
SILENT: Final = replica(lock(5.0), max_ongoing=6, served=0)
FAST: Final = replica(SLEEP, served=300, mean_ms=30.0)
SLOW: Final = replica(SLEEP, pid=3, served=12, mean_ms=600.0)


@cases(
    "trial, cause",
    (busy(93, ASLEEP, alone_ms=200), "proxy CPU"),  # requests alone are faster
    (busy(97, ASLEEP, alone_ms=560), "proxy CPU"),  # it never rests
    (busy(93, pooled(HELD, threads=4, full=1.0), alone_ms=200), "app wait"),
    (busy(93, pooled(HELD, threads=4, full=0.5), alone_ms=200), "proxy CPU"),
    (busy(93, POLLS, alone_ms=45), "proxy CPU"),  # no request waits for that pool
    (burning(93, pooled(HELD, threads=4, full=1.0), 200), "replica CPU"),  # its threads compute
    (burning(86, LOOPS, 600), "replica CPU"),
    (busy(88, FAST, SLOW, alone_ms=30), "slow replica"),
    (long_look(replica(SLEEP, max_ongoing=5, served=0)), "concurrency limit"),
    (seen(SILENT, alone_ms=40), "app wait"),  # it answers nothing, and a lock is held
)
def test_what_limits_beside_a_busy_cpu(trial: Trial, cause: str) -> None:
    assert limited_by(trial).cause == cause


def test_what_is_worth_a_further_load() -> None:
    assert worth_a_look(measured(20, 32, IDLE))
    assert worth_a_look(measured(1, 20, IDLE)) and not worth_a_look(measured(1, 500, IDLE))
    full = usage(process(1, "proxy", 97, wait=1), process(2, "replica", 8, wait=1), host=110)
    assert not worth_a_look(measured(20, 32, full))
    near = usage(process(1, "proxy", 92, wait=1), process(2, "replica", 8, wait=1), host=110)
    assert worth_a_look(replace(measured(20, 32, near), slots={"Shop": 5}))
    assert not worth_a_look(replace(measured(20, 32, full), slots={"Shop": 5}))
    assert not worth_a_look(measured(20, 32, near))  # of the built-in apps the waits are known
    few = {"max_ongoing_requests": 1, "num_replicas": 1}  # but whether slots are left idle
    assert worth_a_look(measured(20, 32, near, of=few))
    assert not worth_a_look(measured(50, 20, IDLE, loop="open", latency_ms=5))
    assert not worth_a_look(replace(measured(20, 32, IDLE), usage=TrialUsage()))


BELOW: Final = {"downstream": 31.0, "Ranker__batch_wait": 30.0}


def traced(**hops_ms: float) -> JsonObject:
    names = {name.replace("_", " ").replace("  ", ": "): ms for name, ms in hops_ms.items()}
    figures = {name: {"mean": round(1e6 * ms)} for name, ms in names.items()}
    return {"total": figures.pop("latency"), "hops": figures}


@cases(
    "hops, cause, words",
    ({"router": 25.0, "replica_slot": 6.0}, "concurrency limit", "router and replica slot 31 of"),
    ({**BELOW, "Ranker__router": 1.0}, "batch wait", "batch wait of Ranker 30 of 43 ms of traced"),
    ({"replica_loop": 22.0}, "replica loop", "replica loop 22 of 43 ms"),
    # What a call waits for before it is sent lies in the hops of another call.
    ({**BELOW, "Post__argument": 31.0}, "batch wait", "batch wait of Ranker 30 of 43 ms"),
)
def test_most_of_the_time_of_traces_is_it(hops: dict[str, float], cause: str, words: str) -> None:
    at = measured(10, 200, IDLE, of=cell(queries=100))
    assert limited_by(at).cause != cause
    expect(changed(at, waterfall=traced(latency=43.0, **hops)), cause, "high", words)


def test_a_hop_with_less_than_half_of_the_time_or_a_full_cpu_decides_otherwise() -> None:
    at = measured(10, 200, IDLE, of=cell(queries=100))
    assert limited_by(changed(at, waterfall=traced(latency=43.0, router=20.0))) == limited_by(at)
    # Ten calls wait for 3 ms each, at once: of 43 ms that is 3.
    at_once = {"downstream": 4.0, "Ranker__batch_wait": 30.0, "Ranker__user_code": 10.0}
    assert limited_by(changed(at, waterfall=traced(latency=43.0, **at_once))) == limited_by(at)
    full = usage(process(1, "proxy", 20, wait=1), process(2, "replica", 98, wait=1), host=130)
    at = changed(measured(10, 200, full), waterfall=traced(latency=43.0, router=40.0))
    assert limited_by(at).cause == "replica CPU"


CHANCE: Final = random.Random(44)


def looked(latencies_ms: Sequence[float], *places: tuple[str, str, float], **more: Any) -> Trial:
    """Make a row with these latencies and no waits in its look, beside 1 to 5 ms of Serve."""
    connections = more.pop("connections", 20)
    trial = seen(replica(*places, **more), alone_ms=630, connections=connections)
    return take(trial, latencies_ms)


def take(trial: Trial, latencies_ms: Sequence[float]) -> Trial:
    values = (round(1e6 * (ms + CHANCE.uniform(1, 5))) for ms in latencies_ms)
    return with_metric(trial, "latency", "ns", *values)


def find_timer(trial: Trial, front: str | None = None) -> str:
    """Find the words on a timer in the verdict; empty without."""
    reasons = limited_by(trial, front, launches=[launch()]).reasons
    return next((words for words in reasons if "not load" in words), "")


def draw(kind: Callable[[], float], count: int = 2000) -> list[float]:
    return [kind() for _ in range(count)]


FIFTY: Final = [50.0] * 300
EVEN: Final = draw(lambda: CHANCE.uniform(1000, 2000))
#: Of which other work on the host delays one in five.
LATE: Final = [ms + (CHANCE.random() < 0.2) * CHANCE.expovariate(1 / 200) for ms in EVEN]
FILLS: Final = {"predict": BATCH | {"wait_s": 0.05, "held": 1.0}}
FILLED: Final = {"predict": FILLS["predict"] | {"waiting": 0.0, "running": 1.0, "held": 64}}
QUEUE: Final = ("serve.batch Shop.predict", "shop.py:109", 0.95)
BATCHES: Final[dict[str, Any]] = {**cell(32, 100), "batch_wait_timeout_s": 0.05}
NAMED: Final = "a timer, not load: 100 % of the latencies are 50 to 75 ms, and batch_wait_timeout_s"
DRAWN: Final = "a drawn time, not load: latencies lie evenly from"
BURNS: Final = usage(process(2, "replica", 60, wait=1), host=60)


@cases(
    "trial, words",
    (looked(FIFTY, QUEUE, batches=FILLS, connections=1), f"{NAMED} is 0.05 s"),
    (take(measured(8, 150, IDLE, of=BATCHES), FIFTY), f"{NAMED} is 0.05 s"),
    (looked(FIFTY, QUEUE, batches=FILLED, connections=1), ""),
    (looked([120.0] * 300, QUEUE, batches=FILLS, connections=1), ""),
    (looked(FIFTY, sleep(20.0)), ""),  # a handler that sleeps is no timer of Serve
    (looked(EVEN, sleep(20.0)), f"{DRAWN} 1 to 2 s"),
    (looked(EVEN, sleep(1.0)), "model of a request (RAY_SERVE_MULTIPLEXED_MODEL_ID_MATCHING_"),
    (looked(draw(lambda: CHANCE.uniform(200, 600)), sleep(1.0)), f"{DRAWN} 0.2 to 0.6 s"),
    (looked(LATE, sleep(20.0)), DRAWN),
    (looked(EVEN[:199], sleep(20.0)), ""),
    (changed(looked(EVEN, sleep(20.0)), waits={}), ""),  # they may wait for one another
    (changed(looked([ms / 50 for ms in EVEN], sleep(20.0)), usage=BURNS), ""),
    (looked(EVEN, sleep(20.0), batches=FILLED), ""),  # they wait for one that runs
)
def test_a_timer_is_named_with_the_setting_that_has_its_time(trial: Trial, words: str) -> None:
    found = find_timer(trial)
    assert words in found if words else not found


@cases(
    "kind",
    lambda: CHANCE.gauss(1500, 150),
    lambda: 100 + CHANCE.expovariate(1 / 300),
    lambda: CHANCE.triangular(1000, 2000),
    lambda: 1000 + 1000 * CHANCE.betavariate(2, 2),
    lambda: CHANCE.choice((1000, 1500, 2000)) + CHANCE.gauss(0, 60),
    lambda: 1000 + 1000 * CHANCE.random() ** 2,
)
def test_a_plain_app_has_no_timer(kind: Callable[[], float]) -> None:
    for trial in (looked(draw(kind), sleep(20.0)), looked(draw(kind), connections=1)):
        assert not find_timer(trial) and not find_timer(changed(trial, waits={}))
