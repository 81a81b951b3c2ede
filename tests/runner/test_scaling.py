import time
from dataclasses import dataclass, field, replace
from typing import Any, cast

from msgspec import structs

from serve_bench.core.facts import DeploymentLimits, SettledFacts
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.own_app import limits_of
from serve_bench.core.request_spec import Request
from serve_bench.core.schema import built
from serve_bench.runner import extra_loads as settling
from serve_bench.runner.served_bench import MOST_S, PATIENCE_S, ReplicaWatch
from serve_bench.serving.server import Serving
from tests.cases import Patch, cases
from tests.records import planned, trial
from tests.rounds import round_of
from tests.servers import serving

LOAD = Load(Request("http://h:1/"))

LIMITS = {
    "Shop": DeploymentLimits(replicas=1, each=2, queued=-1, most=4),
    "Front": DeploymentLimits(replicas=1, each=1),
}


@dataclass
class ScalingServe:
    """A Serve that says how many replicas of Shop run, of four that it wants; and its clock."""

    running: int = 1
    now_s: float = 0.0
    changes: list[tuple[float, int]] = field(default_factory=list)

    def begin_course(self, every_s: float) -> None:
        """Begin the course, which is read from now on."""

    def replica_states(self) -> dict[str, Any]:
        return {"a:Shop": {"wanted": 4, "running": self.running}}

    def end_course(self) -> dict[str, Any]:
        of_shop: dict[str, Any] = {"deployment": "a:Shop", "wanted": 4}
        changes = [{"at_ns": int(s * 1e9), **of_shop, "running": n} for s, n in self.changes]
        return {"changes": [*changes, {"at_ns": 0, "deployment": "a:Front", "running": 1}]}

    def waited_s(self, watch: ReplicaWatch, step: int) -> float:
        """How long a warm-up lasts in which `step` further replicas run every ten seconds."""
        while not watch.settled():
            self.now_s += 1.0
            if self.now_s % 10 == 0:
                self.running += step
        return self.now_s


def watch_of(serve: ScalingServe) -> ReplicaWatch:
    return ReplicaWatch(cast(Serving, serve), "a", clock=lambda: serve.now_s)


def test_a_warm_up_waits_for_replicas_as_long_as_they_come() -> None:
    coming, stuck, endless = ScalingServe(), ScalingServe(), ScalingServe(running=-90)
    assert coming.waited_s(watch_of(coming), 1) == 30
    assert stuck.waited_s(watch_of(stuck), 0) == PATIENCE_S + 1
    assert endless.waited_s(watch_of(endless), 1) == MOST_S + 1
    ready = ScalingServe(running=4)
    assert watch_of(ready).settled()
    replica = {"deployment": "Shop", "max_ongoing_requests": 2, "max_queued_requests": None}
    assert limits_of([replica])["Shop"].most is None
    assert limits_of([{**replica, "autoscaling_config.max_replicas": 4}])["Shop"].most == 4


@cases(
    "changes, ran",
    ([(1, 1), (12, 2), (13, 4), (30, 3)], [1, 2, 4]),
    ([(1, 1), (9, 4)], [4]),
    ([(1, 1), (12, 1)], [1]),  # another state changed
    ([], None),
)
def test_what_ran_is_recorded(changes: list[tuple[float, int]], ran: list[int] | None) -> None:
    """Windows from second 10 to second 20 of the load."""
    zero_ns = time.perf_counter_ns()
    load = structs.replace(round_of(LOAD, 10.0), started_at_ns=time.time_ns() + int(10e9))
    with watch_of(ScalingServe(changes=[(zero_ns / 1e9 + s, n) for s, n in changes])) as watch:
        pass
    found = watch.add_to(replace(trial(planned()), limits=LIMITS), load).limits
    assert [*found["Shop"].ran] == (ran or []) and found["Front"] == LIMITS["Front"]


@cases(
    "found, settled",
    ({"steady": True, "judged": True, "p50_ns": 1}, True),
    ({"steady": False, "judged": True, "p50_ns": 1}, False),
    ({"steady": False, "judged": False, "p50_ns": 1}, True),
    ({"steady": False, "judged": False, "p50_ns": None}, False),
    ({"error": "refused"}, False),
)
def test_what_counts_as_settled(found: dict[str, Any], settled: bool) -> None:
    assert built(SettledFacts, found, "settled").settled is settled


def test_a_service_too_slow_to_be_judged_comes_back(monkeypatch: Patch) -> None:
    # The warm-up has time for four requests; in most windows none is begun.
    monkeypatch.setattr(settling, "SETTLING", Timing(0.1, 0.4, windows=1, window_s=0.01))
    monkeypatch.setattr(settling, "RECOVERY_S", 3.0)
    with serving(delay_s=0.1) as server:
        service = settling.Settling(Load(Request(server.url)), {})
        found = service.first()
        assert (found.steady, found.judged) == (False, False)
        assert service.usual_ns is not None and service.usual_ns >= 0.1e9
        assert service.recovered()
