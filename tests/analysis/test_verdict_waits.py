"""What limited a trial, where it was looked at inside the replicas; and a busy host that limits
nothing. The evidence is that of planted apps on a real Serve (scripts/bench verdicts)."""

from dataclasses import replace
from typing import Any, Final

from serve_bench.analysis.verdict import limited_by, worth_a_look
from serve_bench.core.result import JsonObject, Trial
from tests.cases import cases
from tests.records import cell
from tests.verdict_trials import IDLE, bound, measured, process, usage


def replica(*places: tuple[str, str, float], name: str = "Shop", **more: Any) -> dict[str, Any]:
    """A replica as it was seen; places are what is awaited, the line, and how many requests."""
    told: list[list[Any]] = [[what, line, f"{name}.work", count] for what, line, count in places]
    inside = sum(count for *_, count in places)
    return {
        **{"pid": 2, "app": "app", "deployment": name, "looks": 36, "max_ongoing": 1000},
        **{"ongoing": inside, "served": 60, "mean_ms": 590.0},
        **{"places": told, "own": [], "loop": [], "threads": [], "pools": {}, "batches": {}},
        **more,
    }


def seen(*replicas: dict[str, Any], alone_ms: float = 40.0, connections: int = 20) -> Trial:
    """A row of an idle server, and what was seen in its replicas in a further load."""
    waits = {"p50_ms": 630.0, "alone_p50_ms": alone_ms, "seconds": 1.9, "replicas": [*replicas]}
    slots = {str(one["deployment"]): int(one["max_ongoing"]) for one in replicas}
    uses = process(1, "proxy", 10, wait=0.5), process(2, "replica", 8, wait=0.5, of="app:Shop")
    trial = measured(connections, 1000 * connections / 630, usage(*uses, host=30), of={})
    return replace(trial, waits=waits, slots=slots)


LOCK = replica(("asyncio.Lock.acquire", "shop.py:31", 18.6), ("asyncio.sleep", "shop.py:32", 1))


def test_the_line_at_which_requests_wait_is_named() -> None:
    verdict = limited_by(seen(LOCK))
    assert (verdict.cause, verdict.confidence) == ("app wait", "medium")
    assert verdict.figures == "asyncio.Lock.acquire at shop.py:31, where 19 of 20 requests wait"
    assert verdict.reasons == ("requests wait for one another: p50 630 ms, alone 40",)
    assert "requests wait for one another" in verdict.text
    few = replica(("asyncio.Lock.acquire", "shop.py:31", 0.5), ("asyncio.sleep", "shop.py:32", 0.4))
    assert limited_by(seen(few)).figures.endswith("shop.py:31, where 56 % of the requests wait")


def test_requests_that_take_no_longer_than_one_alone_are_offered_load() -> None:
    """Also in the threads of a pool that has more of them; not where all are in use."""
    asleep = replica(("asyncio.sleep", "shop.py:9", 20.0))
    verdict = limited_by(seen(asleep, alone_ms=600))
    assert (verdict.cause, verdict.confidence) == ("offered load", "medium")
    assert verdict.figures == (
        "offered load, 20 connections, whose requests wait in asyncio.sleep at shop.py:9"
    )
    assert verdict.reasons[0].endswith("alone 600): more clients bring more requests")
    threads = [["AnyIO worker thread", "shop.py:7", "chunks", 20.0]]
    for full, cause in ((0.0, "offered load"), (1.0, "app wait")):
        pools = {"AnyIO worker thread": {"threads": 20, "full": full}}
        pooled = replica(("anyio.run_sync", "", 20.0), pools=pools, threads=threads)
        verdict = limited_by(seen(pooled, alone_ms=600))
        assert verdict.cause == cause and "shop.py:7" in verdict.figures
        assert ("more clients bring more" in verdict.text) == (not full)
    waits = replica(("asyncio.sleep", "shop.py:9", 0.95))
    single = limited_by(seen(waits, alone_ms=600, connections=1)).figures
    assert single == "offered load, 1 connection, whose requests wait in asyncio.sleep at shop.py:9"
    # A fifth of them wait elsewhere: for a permit, say.
    half = replica(("asyncio.sleep", "shop.py:9", 15.0), ("asyncio.locks", "shop.py:8", 5.0))
    assert limited_by(seen(half, alone_ms=600)).cause == "app wait"


def test_no_line_is_named_where_requests_wait_in_many_or_were_hardly_looked_at() -> None:
    spread = replica(*((f"asyncio.{one}", f"shop.py:{one}", 4.0) for one in range(5)))
    few = {**LOCK, "looks": 4}
    for one in (spread, few):
        verdict = limited_by(seen(one))
        assert (verdict.cause, verdict.confidence) == ("app wait", "low")
        assert verdict.figures == "a wait inside the app, CPU idle"


@cases(
    "one, words",
    (
        replica(("a future", "shop.py:9", 20.0), pools={"P-1": {"threads": 1, "full": 1.0}}),
        "1 thread of a pool, for which 20 of 20 requests wait at shop.py:9",
    ),
    (
        replica(
            ("a future", "shop.py:9", 15.0),
            own=[["asyncio.sleep", "shop.py:4", "Shop.engine", 1.0]],
        ),
        "a future at shop.py:9, for which 15 of 15 requests wait while Shop.engine is at shop.py:4",
    ),
    (
        replica(
            ("anyio.to_thread.run_sync", "", 40.0),
            threads=[["AnyIO worker thread", "shop.py:7", "read", 4.0]],
            pools={"AnyIO worker thread": {"threads": 4, "full": 0.9}},
        ),
        "4 threads of a pool (shop.py:7), for which 40 of 40 requests wait",
    ),
    (  # a sync method: its line is in a thread for each request
        replica(
            ("anyio.AsyncIOBackend.run_sync_in_worker_thread", "", 8.0),
            threads=[["AnyIO worker thread", "shop.py:29", "Shop.rank", 7.0]],
            pools={"AnyIO worker thread": {"threads": 9, "full": 0.3}},
        ),
        "shop.py:29 in a thread, where 8 of 8 requests wait",
    ),
    (  # a thread beside them is no reason
        replica(
            ("anyio.AsyncIOBackend.run_sync_in_worker_thread", "", 8.0),
            threads=[["worker", "shop.py:3", "tick", 1.0]],
            pools={"AnyIO worker thread": {"threads": 9, "full": 0.3}},
        ),
        "anyio.AsyncIOBackend.run_sync_in_worker_thread, where 8 of 8 requests wait",
    ),
)
def test_threads_and_tasks_that_are_waited_for(one: dict[str, Any], words: str) -> None:
    verdict = limited_by(seen(one, connections=int(one["ongoing"])))
    assert verdict.cause == "app wait" and verdict.figures.startswith(words)


def test_a_blocked_loop_is_told_with_its_line_on_a_single_row() -> None:
    blocked = replica(("a future", "", 4.7), ongoing=14.3, loop=[["shop.py:64", 1.0]])
    verdict = limited_by(seen(blocked))
    assert (verdict.cause, verdict.confidence) == ("replica loop", "high")
    assert verdict.figures == "replica loop blocked in shop.py:64, 100 % of the looks"
    alone = limited_by(seen(blocked, connections=1, alone_ms=630))
    assert (alone.cause, alone.confidence) == ("replica loop", "medium")
    half = replica(("asyncio.sleep", "shop.py:5", 20.0), loop=[["shop.py:64", 0.5]])
    assert limited_by(seen(half)).cause == "app wait"
    # One that sleeps beside one that computes.
    sleeps = replica(("a future", "", 2.0), pid=2, loop=[["shop.py:5", 1.0]])
    works = replica(("a future", "", 2.0), pid=3, loop=[["shop.py:7", 0.6]])
    uses = [process(2, "replica", 10, wait=1, of="app:Shop")]
    uses += [process(3, "replica", 79, wait=1, of="app:Shop")]
    verdict = limited_by(replace(seen(sleeps, works), usage=usage(*uses, host=110)))
    assert verdict.cause == "replica loop" and "in 1 of 2 replicas" in verdict.figures


def test_a_loop_that_computes_is_cpu_of_its_replica() -> None:
    helper = replica(("a future", "", 2.0), name="Helper", loop=[["shop.py:64", 0.86]])
    trial = seen(
        replica(("ray.DeploymentResponse.__await__", "shop.py:9", 7.0)), helper, connections=8
    )
    for cpu, cause in ((79, "downstream deployment"), (20, "replica loop")):
        uses = process(1, "proxy", 30, wait=1), process(2, "replica", 20, wait=1, of="app:Shop")
        burns = process(3, "replica", cpu, wait=1, of="app:Helper")
        verdict = limited_by(replace(trial, usage=usage(*uses, burns, host=140)), "app:Shop")
        assert verdict.cause == cause and "shop.py:64" in verdict.figures


def test_a_batch_function_of_an_own_app() -> None:
    batch = {"most": 64, "wait_s": 0.2, "waiting": 0.9, "running": 0.0, "held": 8.5}
    place = ("serve.batch Shop.predict", "shop.py:109", 8.5)
    verdict = limited_by(seen(replica(place, batches={"predict": batch}), connections=10))
    assert (verdict.cause, verdict.confidence) == ("batch wait", "medium")
    assert "predict wait 200 ms for more, about 8 of 64 in one" in verdict.figures
    runs = {**batch, "waiting": 0.0, "running": 1.0, "held": 64}
    own = [["asyncio.sleep", "shop.py:108", "Shop.predict", 1.0]]
    verdict = limited_by(seen(replica(place, batches={"predict": runs}, own=own), connections=10))
    assert verdict.cause == "app wait"
    words = "the batch function predict, for which 8 requests wait, itself at shop.py:108"
    assert verdict.figures == words
    # Nothing makes batches any more.
    ended = {**batch, "ended": "KeyError: 'size'"}
    verdict = limited_by(seen(replica(place, batches={"predict": ended}), connections=10))
    assert verdict.figures == (
        "the batch queue of predict, in which 8 requests wait at shop.py:109: Serve's loop that "
        "makes its batches ended with KeyError: 'size'"
    )
    assert "batch_size_fn" in verdict.hint


CALL = "ray.DeploymentResponse get"


def tiers(calls: float, outside: float, helper: dict[str, Any], cpu: float = 8) -> Trial:
    """A front of which so many requests are in a call of the helper, and so many elsewhere."""
    front = replica(
        (CALL, "shop.py:5", calls), ("asyncio.sleep", "shop.py:6", outside), name="Front"
    )
    trial = seen(front, helper)
    uses = [process(1, "proxy", 9, wait=1), process(2, "replica", cpu, wait=1, of="app:Front")]
    uses.append(process(3, "replica", 3, wait=1, of="app:Helper"))
    return replace(trial, usage=usage(*uses, host=22 + cpu))


def test_slots_of_a_helper_limit_only_where_requests_wait_for_them() -> None:
    helper = replica(("asyncio.sleep", "shop.py:40", 1.9), name="Helper", max_ongoing=2)
    verdict = limited_by(tiers(19.9, 0.0, helper), "Front")
    assert (verdict.cause, verdict.deployment) == ("downstream deployment", "Helper")
    assert verdict.figures == "downstream Helper: concurrency limit, 20 requests for 2 slots"
    for held in (0.3, 0.0):  # looks may miss all of 60 requests of 10 ms in 1.9 s
        brief = {**helper, "ongoing": held, "mean_ms": 10.0}
        sleeps = limited_by(tiers(19.9, 0.0, brief), "Front")
        assert "router back-off, 20 requests for 2 slots, idle 84 %" in sleeps.figures
    helper = {**helper, "ongoing": 0.3, "places": [["asyncio.sleep", "shop.py:40", "H.work", 0.3]]}
    rare = limited_by(tiers(0.4, 19.5, helper), "Front")
    assert (rare.cause, rare.deployment) == ("app wait", "Front")
    assert "asyncio.sleep at shop.py:6, where 20 of 20 requests wait" in rare.figures
    # Nothing was looked at: the slots may be the limit, and no more.
    blind = replace(tiers(0.4, 19.5, helper), waits={})
    assert limited_by(blind, "Front").confidence == "low"


def test_a_wait_behind_a_call_is_named_where_it_is() -> None:
    helper = replica(("asyncio.Lock.acquire", "shop.py:40", 19.0), name="Helper")
    verdict = limited_by(tiers(20.0, 0.0, helper), "Front")
    assert (verdict.cause, verdict.deployment) == ("app wait", "Helper")
    words = "Helper: asyncio.Lock.acquire at shop.py:40, where 19 of 20 requests wait"
    assert verdict.figures == words
    # The lock is taken several times a request.
    often = {**helper, "calls": {"a_request": 4.0, "at_once": 1.0}}
    figures = limited_by(tiers(20.0, 0.0, often), "Front").figures
    assert figures == f"{words}, called in sequence, 4 a request, at shop.py:5"


@cases(
    "calls, words",
    ({"a_request": 20.0, "at_once": 1.0}, "in sequence, 20 a request, at shop.py:5"),
    ({"a_request": 20.0, "at_once": 7.5}, "7.5 at once, 20 a request, at shop.py:5"),
    ({"a_request": 1.0, "at_once": 1.0}, "at shop.py:5"),
    (None, "at shop.py:5"),
)
def test_calls_that_hold_requests(calls: dict[str, float] | None, words: str) -> None:
    """Most of the time goes to the way there and back: 20 requests are far from 100 slots."""
    place = ("asyncio.sleep", "shop.py:40", 6.0)
    helper = replica(place, name="Helper", max_ongoing=100, calls=calls)
    verdict = limited_by(tiers(20.0, 0.0, helper), "Front")
    assert (verdict.cause, verdict.deployment) == ("app wait", "Front")
    whole = f"Front: calls of Helper.get {words}, where 20 of 20 requests wait"
    assert verdict.figures == whole
    assert ("asyncio.gather" in verdict.hint) == (calls is not None and calls["a_request"] > 1)
    # Which of two deployments a line calls is not seen, and `__call__` is no word of the user's.
    called = replica(("ray.DeploymentResponse __call__", "shop.py:5", 20.0), name="Front")
    either = replica(place, name="Post", max_ongoing=100)
    trial = replace(seen(called, helper, either), usage=tiers(20.0, 0.0, helper).usage)
    figures = limited_by(trial, "Front").figures
    assert ("calls of another deployment at shop.py:5" in figures) == ("a request" not in words)


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
    place, several = ("asyncio.sleep", "shop.py:40", 2.0), {"a_request": calls, "at_once": 1.0}
    helper = replica(place, name="Helper", max_ongoing=100, calls=several)
    trial = tiers(20.0, 0.0, helper, cpu)
    trial = replace(trial, waits={**trial.waits, "alone_p50_ms": alone_ms})
    verdict = limited_by(trial, "Front")
    words = "calls of Helper.get in sequence, 20 a request, at shop.py:5"
    assert verdict.figures == figures.format(calls=words)
    assert ("asyncio.gather" in verdict.hint) == (calls > 1)
    assert verdict.confidence == {82.0: "low", 92.0: "medium", 97.0: "high"}[cpu]


def test_a_helper_with_few_slots_to_which_few_requests_go_is_not_blamed() -> None:
    """The front calls A always, where a lock is held, and B with its two slots now and then."""
    calls = replica((CALL, "shop.py:5", 20.0), name="Front")
    lock = replica(("asyncio.Lock.acquire", "shop.py:30", 19.3), name="A", max_ongoing=100)
    rare = replica(("asyncio.sleep", "shop.py:40", 0.3), name="B", max_ongoing=2, served=1)
    uses = [process(1, "proxy", 9, wait=1), process(2, "replica", 8, wait=1, of="app:Front")]
    uses += [process(n, "replica", 3, wait=1, of=f"app:{name}") for n, name in ((3, "A"), (4, "B"))]
    verdict = limited_by(replace(seen(calls, lock, rare), usage=usage(*uses, host=30)), "Front")
    assert (verdict.cause, verdict.deployment) == ("app wait", "A")
    assert "asyncio.Lock.acquire at shop.py:30, where" in verdict.figures
    # Where they do wait for a slot, it is the deployment whose slots are full.
    full = {**rare, "ongoing": 1.9, "served": 30}
    free = {**lock, "ongoing": 2.0}
    verdict = limited_by(replace(seen(calls, free, full), usage=usage(*uses, host=30)), "Front")
    assert (verdict.cause, verdict.deployment) == ("downstream deployment", "B")
    assert verdict.figures == "downstream B: concurrency limit, 18 requests for 2 slots"
    # Slots of a helper serve calls: how many of them a request makes is not said.
    idle = {**full, "ongoing": 0.4, "served": 6, "mean_ms": 20.0}
    verdict = limited_by(replace(seen(calls, free, idle), usage=usage(*uses, host=30)), "Front")
    assert verdict.figures.endswith("(never idle: about 100 calls/s)")


def test_full_slots_are_the_limit_unless_requests_wait_for_one_another_inside() -> None:
    slots = replica(("asyncio.sleep", "shop.py:5", 2.0), max_ongoing=2, mean_ms=52.0)
    verdict = limited_by(seen(slots, alone_ms=50), "Shop")
    assert verdict.cause == "concurrency limit" and "20 requests for 2 slots" in verdict.figures
    lock = replica(("asyncio.Lock.acquire", "shop.py:5", 5.0), max_ongoing=6, mean_ms=240.0)
    assert limited_by(seen(lock, alone_ms=40), "Shop").cause == "app wait"


@cases(
    "held, served, haproxy, words",
    (
        *(0.1, 15, False),
        "router back-off, 30 requests for 2 slots, idle 95 % of the time while requests waited "
        "(never idle: about 170 requests/s)",
    ),
    (  # 11 ms between two requests: two tasks try, each 25 ms after its last try
        *(0.9, 165, False),
        "router back-off, 30 requests for 2 slots, idle 48 % of the time while requests waited "
        "(never idle: about 170 requests/s)",
    ),
    (1.9, 300, False, "concurrency limit, 30 requests for 2 slots"),
    (1.0, 190, False, "concurrency limit, 30 requests for 2 slots"),  # handed over within 8 ms
    (0.1, 15, True, "concurrency limit, 30 requests for 2 slots"),  # requests pass no router
)
def test_idle_slots_are_the_router_s(held: float, served: int, haproxy: bool, words: str) -> None:
    place = ("asyncio.sleep", "shop.py:5", held)
    trial = seen(replica(place, max_ongoing=2, served=served, mean_ms=12.0), connections=30)
    if haproxy:
        more = process(4, "haproxy", 5, wait=1)
        trial = replace(
            trial, usage={**trial.usage, "processes": [*trial.usage["processes"], more]}
        )
    verdict = limited_by(trial, "Shop")
    assert verdict.figures == words and verdict.confidence == "high"
    assert ("max_backoff_s" in verdict.hint) is words.startswith("router")


def test_a_replica_that_is_slower_than_the_others() -> None:
    place = ("asyncio.sleep", "shop.py:5", 5.0)
    slow, fast = replica(place, mean_ms=101.0, served=60), replica(place, mean_ms=6.0, served=900)
    verdict = limited_by(seen(slow, fast), "Shop")
    assert (verdict.cause, verdict.confidence) == ("slow replica", "medium")
    assert verdict.figures == (
        "one of 2 replicas, which takes 101 ms a request (60 served), the other 6 ms (900 served)"
    )
    # One that has more requests at once answers as many: it is no slower.
    assert limited_by(seen(slow, {**fast, "served": 70}), "Shop").cause == "app wait"
    # One that answers nothing while it is looked at; where neither does, none is slower.
    slow = replica(place, max_ongoing=5, mean_ms=None, served=0)
    fast = replica(place, max_ongoing=5, mean_ms=100.0, served=90)
    verdict = limited_by(seen(slow, fast), "Shop")
    assert verdict.cause == "slow replica" and "takes more than 1,900 ms" in verdict.figures
    assert limited_by(seen(slow, {**fast, "served": 0}), "Shop").cause != "slow replica"
    # One request that took long is no slow replica.
    rare = replica(("asyncio.sleep", "shop.py:5", 1.0), mean_ms=1000.0, served=1)
    usual = replica(("asyncio.sleep", "shop.py:5", 1.0), mean_ms=100.0, served=8)
    assert limited_by(seen(rare, usual, connections=2), "Shop").cause != "slow replica"
    # One that computes is slow by its core.
    fast = replica(("asyncio.sleep", "shop.py:9", 5.0), pid=2, served=57, mean_ms=105.0)
    hot = replica(("a future", "", 4.0), pid=3, served=5, mean_ms=829.0)
    uses = [process(1, "proxy", 20, wait=1), process(2, "replica", 12, wait=1, of="app:Shop")]
    for wait, of, cause in ((14, "app:Shop", "replica loop"), (1, "app:Other", "slow replica")):
        used = usage(*uses, process(3, "replica", 84, wait=wait, of=of), host=180)
        assert limited_by(replace(seen(fast, hot, alone_ms=100), usage=used)).cause == cause


def test_refused_requests_are_slots_and_queue() -> None:
    trial = measured(30, 20, IDLE, of={}, failed=9000)
    counts = replace(trial.counts, failed={"rejected": 9000})
    limits = {"NoOp": {"replicas": 1, "each": 2, "queued": 5}}
    full = replace(trial, counts=counts, slots={"NoOp": 2}, limits=limits)
    full = replace(full, client={**full.client, "status_codes": {"429": 9000}})
    verdict = limited_by(full, "NoOp")
    assert (verdict.cause, verdict.confidence) == ("concurrency limit", "medium")
    assert verdict.figures == (
        "concurrency limit, 30 clients for 2 slots and a queue of 5: 97.8 % refused (429), "
        "20 requests/s answered"
    )
    assert "--expect-status 200,429" in verdict.hint
    none = replace(counts, sent=9000, completed=0)
    rates = {**full.metrics, "throughput": replace(full.metrics["throughput"], windows=(0.0,))}
    refused = limited_by(replace(full, counts=none, metrics=rates), "NoOp")
    assert "100 % refused (429), 0 requests/s answered" in refused.figures
    # A 503 of an app without such a queue is the app's own.
    assert limited_by(replace(full, limits={}), "NoOp").cause == "unclear"


def scaled(*ran: int) -> Trial:
    """A row of a deployment of which Serve runs so many replicas in turn, of 2 slots each."""
    limits = {"Shop": {"replicas": 1, "each": 2, "queued": -1, "most": 4, "ran": [*ran]}}
    slots = replica(("asyncio.sleep", "shop.py:5", 2.0), max_ongoing=2, mean_ms=50.0)
    return replace(seen(*ran[-1] * [slots]), limits=limits, slots={"Shop": 2})


def test_of_a_deployment_that_serve_scales_the_replicas_are_told() -> None:
    verdict = limited_by(scaled(1), "Shop")
    assert verdict.figures == (
        "concurrency limit, 20 requests for 2 slots (1 replica, which Serve scales up to 4)"
    )
    assert "timeline" in verdict.hint
    assert "Shop.autoscaling_config.min_replicas=4 fixes its replicas, if so many" in verdict.hint
    then = limited_by(replace(scaled(1), waits=scaled(3).waits), "Shop")  # later it had more
    assert then.figures == verdict.figures and "3 replicas of Shop ran then" in str(then.unseen)
    # It has all replicas that it may have: more slots or more replicas are what is left.
    assert "raise max_ongoing_requests" in limited_by(scaled(4), "Shop").hint


@cases("ran", (1, 3, 4), (4, 1, 4))
def test_a_row_while_serve_scales_is_no_steady_state(ran: tuple[int, ...]) -> None:
    verdict = limited_by(scaled(*ran), "Shop")
    assert verdict.text == (
        "unclear: Shop went from 1 to 4 replicas during the row: not a steady state"
    )
    assert "timeline" in verdict.hint and not worth_a_look(scaled(*ran), "Shop")


def two_apps(*replicas: dict[str, Any], busy: float = 8) -> Trial:
    """A row on `b`, which has as ingress a deployment of the same name as `a`, of a config file."""
    uses = [process(1, "proxy", 9, wait=1), process(2, "replica", 3, wait=1, of="a:Ingress")]
    uses.append(process(3, "replica", busy, wait=1, of="b:Ingress"))
    trial = replace(seen(*replicas, connections=8), slots={"Ingress": 5})
    limits = {"Ingress": {"replicas": 1, "each": 5, "queued": -1}}
    return replace(trial, usage=usage(*uses, host=busy + 30), limits=limits)


def test_deployments_of_one_name_in_two_applications_are_two() -> None:
    burns = limited_by(replace(two_apps(busy=97), waits={}), "b:Ingress")
    assert (burns.cause, burns.figures) == ("replica CPU", "Ingress: replica CPU 97 % of a core")
    # The replica of the other application is none that was added.
    place = ("asyncio.sleep", "shop.py:5", 5.0)
    both = two_apps(
        replica(name="Ingress", app="a", served=0),
        replica(place, name="Ingress", app="b", max_ongoing=5, served=100),
    )
    for trial in (both, replace(both, waits={})):
        verdict = limited_by(trial, "b:Ingress")
        assert verdict.cause == "concurrency limit"
        assert verdict.figures == "Ingress: concurrency limit, 8 requests for 5 slots"
    # Nor is it the faster one of two.
    one = replica(place, name="Ingress", app="b", mean_ms=101.0, served=60)
    other = replica(name="Ingress", app="a", mean_ms=6.0, served=900)
    assert limited_by(two_apps(one, other), "b:Ingress").cause != "slow replica"
    assert limited_by(two_apps(one, {**other, "app": "b"}), "b:Ingress").cause == "slow replica"


def test_a_full_host_limits_nothing_while_all_on_the_way_rest() -> None:
    """Others fill the cores; what is on the way of a request ran or waited for half of the time.
    A client that is late by them, and rests as well, limits nothing either."""

    def host_of(wait: float, client: dict[str, Any] | None = None) -> Trial:
        one = process(1, "proxy", 20, wait=wait), process(2, "replica", 15, wait=wait)
        return measured(20, 32, usage(*one, host=200), of={}, client=client)

    assert limited_by(host_of(30)).cause == "app wait"
    late = bound(0.45, 0.44, "responses waited in the client for 13 % of their latency")
    assert limited_by(host_of(30, late)).cause == "app wait"
    verdict = limited_by(host_of(75))
    assert (verdict.cause, verdict.confidence) == ("host CPU", "high")


#: As planted on two cores beside a third of a core of another program: a sync endpoint that sleeps
#: for 0.5 s, whose pool has a thread for each request.
PROXY_AND_REPLICA: Final = (
    process(1, "proxy", 77, wait=144, thread=20, thread_wait=44),
    process(2, "replica", 80, wait=187, thread=25, thread_wait=54, of="app:Shop"),
)


def crowded(*replicas: dict[str, Any], alone_ms: float, others: float = 30) -> Trial:
    """The same host, and what was seen in the replicas, if there are any."""
    others_used = {"program": "python x.py", "pid": 7, "processes": 1, "cpu_percent": others}
    programs = {"typical_percent": others, "programs": [others_used]}
    trial = measured(120, 200, usage(*PROXY_AND_REPLICA, host=200), of={}, latency_ms=610)
    trial = replace(trial, usage={**trial.usage, "others": programs}, slots={"Shop": 500})
    waits = {"p50_ms": 610.0, "alone_p50_ms": alone_ms, "seconds": 1.9, "replicas": [*replicas]}
    return replace(trial, waits=waits if replicas else {})


def test_a_wait_that_is_the_larger_part_comes_before_a_full_host() -> None:
    blind = crowded(alone_ms=515)
    assert limited_by(blind).cause != "app wait" and worth_a_look(blind)
    assert limited_by(blind).confidence == "low"
    sleeps = replica(("anyio.to_thread.run_sync", "shop.py:9", 100.0))
    locked = replica(("asyncio.Lock.acquire", "shop.py:9", 100.0))
    for seen_, alone_ms in ((sleeps, 515), (locked, 100)):
        verdict = limited_by(crowded(seen_, alone_ms=alone_ms))
        assert (verdict.cause, verdict.confidence) == ("app wait", "low")
        assert "shop.py:9" in verdict.figures and verdict.runner_up == "host 200 of 200 %"
    idle = replica(("asyncio.sleep", "shop.py:9", 0.4), max_ongoing=1, served=60, mean_ms=5.0)
    slept = limited_by(replace(crowded(idle, alone_ms=25), slots={"Shop": 1}))
    assert (slept.cause, slept.confidence) == ("router back-off", "low")
    # A request alone takes no longer than it runs and waits for a CPU.
    computes = limited_by(crowded(locked, alone_ms=25))
    assert computes.cause == "replica CPU"


def test_a_host_is_the_limit_for_sure_only_if_cpu_explains_the_latency() -> None:
    """A program takes most of both cores; the proxy is asleep for a fifth of the time, or never."""
    for thread_wait, confidence in ((45, "medium"), (65, "high")):
        proxy = process(1, "proxy", 30, wait=150, thread=30, thread_wait=thread_wait + 5)
        other = process(2, "replica", 25, wait=70, thread=25, thread_wait=30)
        verdict = limited_by(measured(100, 200, usage(proxy, other, host=200), of={}))
        assert (verdict.cause, verdict.confidence) == ("host CPU", confidence)
    named = {"program": "python x.py", "pid": 7, "processes": 1, "cpu_percent": 120.0}
    trial = measured(20, 32, usage(process(1, "proxy", 20, wait=75), host=200), of={})
    usage_ = {**trial.usage, "others": {"typical_percent": 120.0, "programs": [named]}}
    words = "180 % by others: python x.py (pid 7) used 120 % of a core"
    assert limited_by(replace(trial, usage=usage_)).figures == f"host CPU 200 of 200 %, {words}"


def busy(cpu: float, *replicas: dict[str, Any], alone_ms: float) -> Trial:
    """What was seen in the replicas beside a proxy that uses so much of a core."""
    uses = process(1, "proxy", cpu, wait=1), process(2, "replica", 20, wait=1, of="app:Shop")
    return replace(seen(*replicas, alone_ms=alone_ms), usage=usage(*uses, host=140))


def test_a_cpu_that_rests_at_times_gives_way_to_what_requests_are_seen_to_wait_for() -> None:
    asleep = replica(("asyncio.sleep", "shop.py:9", 19.0))
    verdict = limited_by(busy(93, asleep, alone_ms=560))
    assert (verdict.cause, verdict.confidence) == ("app wait", "low")
    assert "next limit: proxy CPU 93 %" in verdict.text
    # So it does to batches at work.
    batch = {"waiting": 0.1, "running": 0.87, "most": 16, "wait_s": 0.01, "held": 16}
    place = ("serve.batch Shop.rank", "shop.py:9", 12.0)
    at_work = replica(place, batches={"rank": batch}, own=[["asyncio.sleep", "shop.py:7", "r", 1]])
    verdict = limited_by(busy(85, at_work, alone_ms=200))
    assert (verdict.cause, verdict.confidence) == ("app wait", "low")
    assert "the batch function rank, for which 12 requests wait" in verdict.figures
    assert limited_by(busy(85, at_work, alone_ms=30)).cause == "proxy CPU"


SLEEP: Final = ("asyncio.sleep", "shop.py:9", 5.0)
IN_THREADS: Final = ("anyio.to_thread.run_sync", "shop.py:9", 20.0)


def workers(full: float) -> dict[str, Any]:
    """Requests in a pool of four threads, full at this share of the looks."""
    return replica(IN_THREADS, pools={"AnyIO worker thread": {"threads": 4, "full": full}})


def burning(cpu: float, one: dict[str, Any], alone_ms: float) -> Trial:
    """What was seen in a replica that uses so much of a core itself."""
    full = process(2, "replica", cpu, wait=1, of="app:Shop")
    return replace(seen(one, alone_ms=alone_ms), usage=usage(full, host=140))


def long_look(one: dict[str, Any]) -> Trial:
    """A look of 5 s at requests that take 24 s."""
    trial = seen(one, alone_ms=6000)
    return replace(trial, waits={**trial.waits, "seconds": 5.0, "p50_ms": 24000})


ASLEEP: Final = replica(("asyncio.sleep", "shop.py:9", 19.0))
POLLS: Final = replica(SLEEP, pools={"P-1": {"threads": 1, "full": 1.0}})
LOOPS: Final = replica(("a future", "shop.py:9", 2.0), loop=[["shop.py:9", 0.86]])
SILENT: Final = replica(("asyncio.Lock.acquire", "shop.py:5", 5.0), max_ongoing=6, served=0)
FAST: Final = replica(SLEEP, served=300, mean_ms=30.0)
SLOW: Final = replica(SLEEP, pid=3, served=12, mean_ms=600.0)


@cases(
    "trial, cause",
    (busy(93, ASLEEP, alone_ms=200), "proxy CPU"),  # requests alone are faster
    (busy(97, ASLEEP, alone_ms=560), "proxy CPU"),  # it never rests
    (busy(93, workers(1.0), alone_ms=200), "app wait"),
    (busy(93, workers(0.5), alone_ms=200), "proxy CPU"),
    (busy(93, POLLS, alone_ms=45), "proxy CPU"),  # no request waits for that pool
    (burning(93, workers(1.0), 200), "replica CPU"),  # its threads compute
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
    assert not worth_a_look(replace(measured(20, 32, IDLE), usage={}))


def traced(**hops_ms: float) -> JsonObject:
    names = {name.replace("_", " ").replace("  ", ": "): ms for name, ms in hops_ms.items()}
    figures = {name: {"mean": 1e6 * ms} for name, ms in names.items()}
    return {"total": figures.pop("latency"), "hops": figures}


@cases(
    "hops, cause, words",
    (
        {"router": 25.0, "replica_slot": 6.0},
        "concurrency limit",
        "concurrency limit: router and replica slot 31 of 43 ms of traced requests",
    ),
    (
        {"downstream": 31.0, "Ranker__batch_wait": 30.0, "Ranker__router": 1.0},
        "batch wait",
        "batch wait of Ranker 30 of 43 ms of traced requests",
    ),
    ({"replica_loop": 22.0}, "replica loop", "replica loop 22 of 43 ms"),
    (  # what a call waits for before it is sent lies in the hops of another call
        {"downstream": 31.0, "Ranker__batch_wait": 30.0, "Post__argument": 31.0},
        "batch wait",
        "batch wait of Ranker 30 of 43 ms",
    ),
)
def test_most_of_the_time_of_traces_is_it(hops: dict[str, float], cause: str, words: str) -> None:
    at = measured(10, 200, IDLE, of=cell(queries=100))
    assert limited_by(at).cause != cause
    verdict = limited_by(replace(at, waterfall=traced(latency=43.0, **hops)))
    assert (verdict.cause, verdict.confidence) == (cause, "high")
    assert verdict.figures.startswith(words)


def test_a_hop_with_less_than_half_of_the_time_or_a_full_cpu_decides_otherwise() -> None:
    at = measured(10, 200, IDLE, of=cell(queries=100))
    part = replace(at, waterfall=traced(latency=43.0, router=20.0))
    assert limited_by(part) == limited_by(at)
    # Ten calls wait for 3 ms each, at once: of 43 ms that is 3.
    at_once = {"downstream": 4.0, "Ranker__batch_wait": 30.0, "Ranker__user_code": 10.0}
    assert limited_by(replace(at, waterfall=traced(latency=43.0, **at_once))) == limited_by(at)
    full = usage(process(1, "proxy", 20, wait=1), process(2, "replica", 98, wait=1), host=130)
    at = replace(measured(10, 200, full), waterfall=traced(latency=43.0, router=40.0))
    assert limited_by(at).cause == "replica CPU"
