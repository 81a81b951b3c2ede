import json
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from serve_bench.core.facts import LastHeard, TrialUsage
from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import LoadResult, Progress
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.nodes import Lost, Node, node_fact
from serve_bench.core.request_spec import Request
from serve_bench.core.schema import built, plain
from serve_bench.nodes.actors import LoadActor
from serve_bench.nodes.crew import NodesFailed, NodesResult, Part, part_of, reach, summed
from serve_bench.serving.child import Child, ChildError
from tests.cases import cases, sure
from tests.load.test_combine import MS, a_result
from tests.places import wait_until
from tests.servers import serving

NODE = Node("ab" * 28, "10.1.0.2", "one", True, False, 4.0)
NONE = Histogram()
LOAD = Load(Request("http://10.1.0.2:8000/x"), connections=2)


def test_facts_of_a_node_of_ours() -> None:
    part = a_result(
        [MS * k for k in range(1, 101)], (40, 60), connection_rate_max=70.0, censored=NONE
    )
    fact = node_fact(NODE, LOAD, part, TrialUsage(interval_s=0.2))
    assert (fact.node, fact.url, fact.connections) == (NODE.node_id, LOAD.request.url, 2)
    assert (fact.seconds, fact.completed, fact.rate) == (2.0, 99, 49.5)  # by time
    assert fact.failed == {"timeout": 3} and fact.bytes_received == 10_000
    assert (fact.connection_rate_mean, fact.connection_rate_max) == (24.75, 70.0)
    assert fact.latency_ns["max"] == 100 * MS
    assert fact.latency_ns["mean"] == pytest.approx(50.5 * MS, rel=0.001)
    assert fact.latency_ns["p90"] == pytest.approx(90 * MS, rel=0.02)
    assert fact.lost is None and fact.usage == TrialUsage(interval_s=0.2)


def test_facts_of_a_lost_node() -> None:
    fact = node_fact(NODE, LOAD, Lost("its node has died", 500, 4, 1.5), None)
    assert fact.lost == "its node has died"
    assert (fact.completed, fact.failed, fact.rate) == (0, {"node": 504}, 0.0)
    assert fact.last_heard == LastHeard(500, 4, 1.5)
    assert set(fact.latency_ns) == {"mean", "max", "p50", "p75", "p90", "p99"}
    assert set(fact.latency_ns.values()) == {None}
    assert node_fact(NODE, LOAD, a_result([MS], (1,)), None).last_heard is None


def test_only_the_living_are_combined() -> None:
    loads = {"a": LOAD, "b": LOAD, "c": LOAD}
    parts: dict[str, Part] = {
        "a": a_result([MS] * 4, (4,)),
        "b": Lost("gone", 9),
        "c": a_result([MS], (1,)),
    }
    result = NodesResult(parts, {"a": TrialUsage(interval_s=0.2)}, 0.01)
    assert sure(result.combined(LOAD)).measured.completed == 5
    assert list(result.lost) == ["b"]
    nodes = [replace(NODE, node_id=name) for name in ("c", "a", "other", "b")]
    facts = result.node_facts(nodes, loads)
    assert [fact.node for fact in facts] == ["c", "a", "b"]
    assert [fact.usage for fact in facts] == [None, TrialUsage(interval_s=0.2), None]
    assert NodesResult({"a": Lost("gone")}).combined(LOAD) is None


def progress(phase: str, **change: Any) -> dict[str, Any]:
    one = Progress(phase, 1.0, 2.0, 10.0, 100, 1)  # type: ignore[arg-type]
    return {"progress": asdict(replace(one, **change)), "ended": None}


def test_the_progress_of_all_is_that_of_the_least_far() -> None:
    assert summed([]) is None
    assert summed([{"progress": None, "ended": None}]) is None
    both = summed([progress("measure"), progress("measure", rate=5.0, completed=50, failed=0)])
    assert both is not None
    assert (both.phase, both.rate, both.completed, both.failed) == ("measure", 15.0, 150, 1)
    mixed = sure(summed([progress("measure"), progress("warmup", remaining_s=3.0, completed=7)]))
    assert (mixed.phase, mixed.completed, mixed.remaining_s) == ("warmup", 7, 3.0)
    gone = {**progress("connect"), "ended": "lost"}
    assert sure(summed([gone, progress("drain")])).phase == "drain"


def test_what_came_of_a_node() -> None:
    result = a_result([MS], (1,))
    assert part_of({"kind": "load", "result": plain(result)}) == result
    lost = {"kind": "lost", "reason": "r", "completed": 2, "failed": 1, "age_s": 0.5}
    assert part_of(lost) == Lost("r", 2, 1, 0.5)
    error = {"kind": "load_error", "error_class": "connect", "host": "h", "port": 1, "reason": "no"}
    assert part_of(error) == Lost("connect: h:1: no")
    assert part_of({"kind": "called_off"}) == Lost("called off before it measured")


@cases(
    "address", "ray://h:10001", "http://h:8265", "h", "h:", ":6379", "h:99999", "h:x", "local", ""
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(NodesFailed, match=r"is not allowed; it takes HOST:PORT"):
        reach(address)
    with pytest.raises(NodesFailed, match=r"at 127\.0\.0\.1:1: connection refused$"):
        reach("127.0.0.1:1")
    with pytest.raises(NodesFailed, match=r"^no Ray cluster at \[::1\]:1: "):
        reach("[::1]:1")


TIMING = Timing(0.1, 0.2, windows=2, window_s=0.15)


def drive(actor: LoadActor, load: Load, sample: bool = False) -> tuple[threading.Thread, list[Any]]:
    out: list[Any] = []
    spec, times = plain(load), asdict(TIMING)
    thread = threading.Thread(target=lambda: out.append(actor.drive(1, spec, times, {}, sample)))
    thread.start()
    return thread, out


def test_an_actor_waits_to_be_told_to_begin() -> None:
    actor = LoadActor()
    assert actor.progress(1) is None
    with serving(delay_s=0.002) as server:
        thread, out = drive(actor, Load(Request(server.url), connections=2), sample=True)
        wait_until(lambda: (actor.progress(1) or {}).get("at_gate"))
        actor.begin(2)  # of another load
        before = len(server.log)
        time.sleep(0.3)
        assert not out and len(server.log) > before  # it warms up on
        assert actor.progress(2) is None
        actor.begin(1)
        thread.join(20)
    (said,) = out
    result = built(LoadResult, said["result"], "it")
    assert said["kind"] == "load"
    assert result.total.sent == len(server.log) and len(result.windows) == 2
    assert 0 <= said["opened_after_s"] < 1
    assert "load_worker" in {one["role"] for one in said["usage"]["processes"]}
    json.dumps(said)


def test_an_actor_is_called_off_at_the_gate_and_says_why_it_cannot() -> None:
    actor = LoadActor()
    with serving(delay_s=0.002) as server:
        thread, out = drive(actor, Load(Request(server.url)))
        wait_until(lambda: (actor.progress(1) or {}).get("at_gate"))
        actor.call_off(1)
        thread.join(20)
    assert out == [{"kind": "called_off"}]
    thread, out = drive(actor, Load(Request(server.url)))
    thread.join(20)
    assert out[0]["kind"] == "load_error" and out[0]["reason"] == "connection refused"


ECHO = """
import json, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    time.sleep(asked["sleep_s"])
    said = {"event": "done", "number": asked["number"], "said": asked["say"]}
    print(json.dumps(said), flush=True)
"""


def test_an_answer_to_what_was_given_up_is_passed_over(tmp_path: Path) -> None:
    child = Child(
        [sys.executable, "-c", ECHO], log=tmp_path / "log", cwd=tmp_path, env={}, name="the echo"
    )
    try:
        with pytest.raises(ChildError, match="gave no answer"):
            child.ask("x", {"say": "late", "sleep_s": 1.5}, 0.2, number=1)
        answer = child.ask("x", {"say": "mine", "sleep_s": 0}, 20, number=2)
        assert answer["said"] == "mine"
    finally:
        child.kill()
        child.wait()
