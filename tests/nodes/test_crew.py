import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from serve_bench.core.facts import LastHeard, TrialUsage
from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import LoadResult, Progress
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.nodes import Node, NodePart, NodeState, node_fact, sum_progress
from serve_bench.core.request_spec import Request
from serve_bench.core.schema import built, plain
from serve_bench.nodes.actors import LoadActor
from serve_bench.nodes.crew import NodeCrew, NodesFailed
from serve_bench.runner.load_source import with_losses
from serve_bench.serving.child import Child, ChildError
from tests.cases import cases, sure
from tests.places import wait_until
from tests.rounds import MS, a_result
from tests.servers import serving

NODE = Node("ab" * 28, "10.1.0.2", "one")
NONE = Histogram()
LOAD = Load(Request("http://10.1.0.2:8000/x"), connections=2)


def test_facts_of_a_node_of_ours() -> None:
    times = range(MS, 101 * MS, MS)
    part = a_result([*times], (40, 60), connection_rate_max=70.0, censored=NONE)
    fact = node_fact(NODE, LOAD, NodePart(part, usage=TrialUsage(interval_s=0.2)))
    assert (fact.node, fact.url, fact.connections) == (NODE.node_id, LOAD.request.url, 2)
    assert (fact.seconds, fact.completed, fact.rate) == (2.0, 99, 49.5)  # by time
    assert fact.failed == {"timeout": 3} and fact.bytes_received == 10_000
    assert (fact.connection_rate_mean, fact.connection_rate_max) == (24.75, 70.0)
    assert fact.latency_ns["max"] == 100 * MS
    assert fact.latency_ns["mean"] == pytest.approx(50.5 * MS, rel=0.001)
    assert fact.latency_ns["p90"] == pytest.approx(90 * MS, rel=0.02)
    assert fact.lost is None and fact.usage == TrialUsage(interval_s=0.2)


def test_facts_of_a_lost_node() -> None:
    heard = LastHeard(500, 4, 1.5)
    fact = node_fact(NODE, LOAD, NodePart(reason="its node has died", last_heard=heard))
    assert fact.lost == "its node has died"
    assert (fact.completed, fact.failed, fact.rate) == (0, {"node": 504}, 0.0)
    assert fact.last_heard == heard
    assert set(fact.latency_ns) == {"mean", "max", "p50", "p75", "p90", "p99"}
    assert set(fact.latency_ns.values()) == {None}
    assert node_fact(NODE, LOAD, NodePart(a_result([MS], (1,)))).last_heard is None


def combine(**parts: NodePart) -> LoadResult | NodesFailed:
    """Combine the loads from these nodes, which began within 10 ms."""
    crew = NodeCrew("auto", "ab12cd", Path("log"))
    crew.nodes = tuple(replace(NODE, node_id=name) for name in ("c", "a", "other", "b"))
    result = crew._combine(dict.fromkeys(parts, LOAD), {"parts": plain(parts), "skew_s": 0.01})
    assert not isinstance(result, LoadResult) or result.skew_s == 0.01
    return result


def test_only_the_living_are_combined() -> None:
    usage = TrialUsage(interval_s=0.2)
    whole = combine(
        a=NodePart(a_result([MS] * 4, (4,)), usage=usage),
        b=NodePart(reason="gone", last_heard=LastHeard(9, 0, 0.5)),
        c=NodePart(a_result([MS], (1,))),
    )
    assert isinstance(whole, LoadResult)
    assert whole.measured.completed == 5
    assert [fact.node for fact in whole.nodes] == ["c", "a", "b"]
    assert [fact.lost for fact in whole.nodes] == [None, None, "gone"]
    assert [fact.usage for fact in whole.nodes] == [None, usage, None]
    (failure,) = with_losses(whole).failures
    assert (failure.node, failure.reason, failure.completed) == ("one (10.1.0.2)", "gone", 9)


def test_where_no_node_has_a_result_it_says_why() -> None:
    refused, gone = NodePart(reason="connect: h:1: no", refused=True), NodePart(reason="gone")
    assert str(combine(a=refused, b=refused)) == "connect: h:1: no"  # as a local load says it
    found = str(combine(b=gone, a=refused))
    assert found == "no node could drive its load: one (10.1.0.2, b): gone"
    assert str(combine()) == "called off before it measured"  # in a load that never began
    broken = NodePart(reason="ValueError: no", broken=True)
    with pytest.raises(NodesFailed, match=r"^the load on node one \(10\.\S+, a\) broke: ValueErr"):
        combine(a=broken, c=NodePart(a_result([MS], (1,))))


def test_the_progress_of_all_is_that_of_the_least_far() -> None:
    node = Progress("measure", 1.0, 2.0, 10.0, 100, 1)
    assert sum_progress([]) is None and sum_progress([None]) is None
    both = sure(sum_progress([node, replace(node, rate=5.0, completed=50, failed=0)]))
    assert (both.phase, both.rate, both.completed, both.failed) == ("measure", 15.0, 150, 1)
    warming = replace(node, phase="warmup", remaining_s=3.0, completed=7)
    mixed = sure(sum_progress([node, None, warming]))
    assert (mixed.phase, mixed.completed, mixed.remaining_s) == ("warmup", 7, 3.0)


@cases(
    "address", "ray://h:10001", "http://h:8265", "h", "h:", ":6379", "h:99999", "h:x", "local", ""
)
def test_what_is_no_address(address: str) -> None:
    def start(address: str) -> None:
        NodeCrew(address, "ab12cd", Path("/nowhere")).start()

    with pytest.raises(NodesFailed, match=r"is not allowed; it takes HOST:PORT"):
        start(address)
    with pytest.raises(NodesFailed, match=r"at 127\.0\.0\.1:1: connection refused$"):
        start("127.0.0.1:1")
    with pytest.raises(NodesFailed, match=r"^no Ray cluster at \[::1\]:1: "):
        start("[::1]:1")


TIMING = Timing(0.1, 0.2, windows=2, window_s=0.15)


def test_an_actor_waits_to_be_told_to_begin() -> None:
    actor = LoadActor()
    assert actor.state() == NodeState()
    with serving(delay_s=0.002) as server, ThreadPoolExecutor() as pool:
        load = Load(Request(server.url), connections=2)
        task = pool.submit(actor.drive, load, TIMING, {}, sample=True)
        wait_until(lambda: actor.state().at_gate)
        before = len(server.log)
        time.sleep(0.3)
        assert not task.done() and len(server.log) > before  # it warms up on
        actor.begin()
        part = built(NodePart, task.result(20), "part")
    result, usage = sure(part.result), sure(part.usage)
    assert result.total.sent == len(server.log) and len(result.windows) == 2
    assert 0 <= sure(part.opened_after_s) < 1
    assert "load_worker" in {process.role for process in usage.processes}
    # The next load does not begin before it is told to; what this one did is known until then.
    assert not actor.state().at_gate and sure(actor.state().progress).completed


def test_an_actor_is_called_off_at_the_gate_and_says_why_it_cannot() -> None:
    actor = LoadActor()
    with serving(delay_s=0.002) as server, ThreadPoolExecutor() as pool:
        load = Load(Request(server.url))
        task = pool.submit(actor.drive, load, TIMING, {}, sample=False)
        wait_until(lambda: actor.state().at_gate)
        actor.call_off()
        assert task.result(20) == plain(NodePart(reason="called off before it measured"))
    part = built(NodePart, actor.drive(load, TIMING, {}, sample=False), "part")
    assert part.refused and part.reason.endswith("connection refused")


def test_an_answer_to_what_was_given_up_is_passed_over(tmp_path: Path) -> None:
    echo = ["/bin/sh", "-c", "sleep 1; exec cat"]
    child = Child(echo, log=tmp_path / "log", cwd=tmp_path, env={}, name="the echo")
    try:
        with pytest.raises(ChildError, match="gave no answer"):
            child.ask("x", {"event": "done", "said": "late"}, 0.2, number=1)
        answer = child.ask("x", {"event": "done", "said": "mine"}, 20, number=2)
        assert answer["said"] == "mine"
    finally:
        child.kill()
        child.wait()
