from serve_bench.core.content import Content
from serve_bench.core.load_spec import Stage
from serve_bench.core.schema import built, plain
from serve_bench.core.timeline import PlannedFault, Timeline, check_faults, read_fault
from tests.cases import cases, refusal

STOPPED = PlannedFault("stop", 30.0, "replica", None, 5.0)


@cases(
    "text, fault, words",
    ("kill:replica@30s", PlannedFault("kill", 30.0, "replica"), "kill a replica at 30 s"),
    ("kill:proxy@1m", PlannedFault("kill", 60.0, "proxy"), "kill the proxy at 60 s"),
    ("stop:replica@30s+5s", STOPPED, "stop a replica at 30 s for 5 s"),
    ("deploy@60s", PlannedFault("deploy", 60.0), "deploy new replicas at 60 s"),
    ("deploy:in-place@2", PlannedFault("deploy", 2.0, "in-place"), "deploy in place at 2 s"),
)
def test_a_fault(text: str, fault: PlannedFault, words: str) -> None:
    assert read_fault(text) == fault
    assert fault.text == words
    assert read_fault(fault.source) == fault


@cases(
    "text, why",
    ("kill:replica", "it takes kill:replica@30s"),
    ("kill:replica@soon", "'soon' is not allowed; it takes a time"),
    ("kill@3s", "no target is not allowed; kill takes replica, proxy, controller, node"),
    ("kill:replica@3s+2s", "kill has no duration"),
    ("stop:replica@3s", "stop takes how long"),
    ("stop:node@3s+2s", "node is not allowed; stop takes replica, proxy, controller"),
    ("stop:replica@3s+0s", "'0s' is not allowed"),
    ("deploy:later@3s", "it takes deploy@60s or deploy:in-place@60s"),
)
def test_a_fault_that_is_refused(text: str, why: str) -> None:
    said = refusal(timeline_of, stages="50:10s", faults=[text])
    assert said.startswith("a.toml: timeline.faults: ") and why in said


def timeline_of(**keys: object) -> Timeline:
    return Timeline.read(Content("a.toml", {"timeline": keys}))


def test_a_timeline() -> None:
    faults = ["deploy@30s", "kill:replica@5s"]
    made = timeline_of(stages="50:20s,0:500ms,50:40s", after="1m", faults=faults)
    assert made.stages == (Stage(50.0, 20.0), Stage(0.0, 0.5), Stage(50.0, 40.0))
    assert made.begins == (0.0, 20.0, 20.5) and made.seconds == 61 and made.after_s == 60.0
    assert [fault.source for fault in made.faults] == ["kill:replica@5s", "deploy@30s"]
    assert made.source == "50:20s,0:0.5s,50:40s"
    assert built(Timeline, plain(made), "timeline") == made


@cases(
    "keys, why",
    ({"stages": "50:0s"}, "stages: 50:0s: '0s' is not allowed"),
    ({"stages": "0:10s,50:10s"}, "stages: the first stage warms up too"),
    ({"stages": "1:7h"}, "stages: take 25200 s; 21600 s is the most"),
    ({"stages": "-1:7s"}, "stages: rate must be 0 or more, got -1"),
    ({"faults": ["kill:node@3s"]}, "the cluster has one node; --nodes 2 gives two"),
    ({"faults": ["deploy@11s"]}, "faults: deploy@11s: the load is over by then, after 10 s"),
)
def test_a_timeline_that_is_refused(keys: dict[str, object], why: str) -> None:
    said = refusal(timeline_of, **{"stages": "50:10s", **keys})
    assert said.startswith("a.toml: timeline") and why in said


def test_a_deployment_that_is_not_there() -> None:
    there, gone = (read_fault(f"kill:replica:{name}@3s") for name in ("Shop", "Shpo"))
    check_faults([there], ["Shop"], "--fault")
    said = refusal(check_faults, [gone], ["Shop", "Ranker"], "--fault")
    assert "no deployment Shpo; did you mean 'Shop'?" in said
