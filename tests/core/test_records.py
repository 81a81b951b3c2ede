import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_bench.core.errors import FormatError
from serve_bench.core.histogram import Histogram
from serve_bench.core.record_lines import from_json, parse, to_line
from serve_bench.core.result import (
    FORMAT_VERSION,
    Failure,
    Record,
    Resume,
    Teardown,
    cell_slug,
    result_of,
    trial_key,
)
from tests.cases import cases, refusal
from tests.records import AT, ROWS, cell, launch, planned, run, trial

FIRST, SECOND = planned(row=ROWS[0]), planned(row=ROWS[1])
RESUME = Resume(argv=("serve-bench",), started_at=AT)


def to_json(record: Record) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(to_line(record))
    return data


@given(
    windows=st.lists(st.floats(0, 1e9), min_size=1, max_size=5),
    text=st.text(),
    count=st.integers(0, 10**12),
)
def test_any_number_and_text_comes_back(windows: list[float], text: str, count: int) -> None:
    record = trial(FIRST, *windows, failed={"reset": count}, client={"note": text})
    assert from_json(json.loads(to_line(record))) == record


def test_unknown_fields_are_passed_over_and_cpu_is_seen_after_a_load_too() -> None:
    assert from_json(wrong("course", course(after_s=2.4, cpu={"proxy": [5.0, 6.0, None, 1.0]})))
    data = to_json(trial(FIRST)) | {"colour": "red"}
    data["row"]["shade"] = 1
    assert from_json(data) == trial(FIRST)
    with pytest.raises(ValueError, match="Out of range"):
        to_line(Teardown("default-1", float("nan"), 0, True))
    # What is unknown or damaged is said in a line each.
    damaged = to_line(trial(FIRST, latency=Histogram.of([5]).encode()))
    damaged = damaged.replace('"unit":"ns"', '"unit":"a\\nb"', 1)
    result = parse([to_line(run(FIRST)), '{"kind": "weather"}\n', damaged, to_line(trial(FIRST))])
    assert len(result.trials) == 1
    kind, unit = result.warnings
    assert (kind.code, unit.code) == ("unknown-kind", "damaged")
    assert kind.message == "line 2: a record of unknown kind 'weather': passed over"
    assert "a\\nb" in unit.message and "\n" not in unit.message


@cases(
    "version, said",
    (1, "records of format 1: this serve-bench reads 2, measure again with it"),
    (3, "records of format 3: this serve-bench reads 2, a newer one is needed"),
    *((version, "not a version number") for version in (None, "1", 0, True)),
)
def test_another_format_is_refused(version: object, said: str) -> None:
    assert FORMAT_VERSION == 2 == to_json(run())["format"]
    line = refusal(parse, [json.dumps(to_json(run()) | {"format": version})])
    assert line.startswith("line 1: ") and said in line


@cases("cut", 1, 20, -2)
def test_a_cut_off_last_line_is_read_up_to(cut: int) -> None:
    last = to_line(trial(FIRST))
    result = parse([to_line(run(FIRST)), to_line(launch()), last[:cut]])
    assert len(result.launches) == 1
    assert result.trials == ()
    (warning,) = result.warnings
    assert warning.message == "line 3, the last, is cut off: read up to it"


def test_200_000_broken_lines_are_one_warning_with_their_number_and_the_first_places() -> None:
    broken, unknown = ["}{\n"] * 200_000, ['{"kind":"weather"}\n'] * 3
    result = parse([to_line(run(FIRST)), *broken, *unknown, to_line(trial(FIRST))])
    assert len(result.trials) == 1
    first, *others = [warning.message for warning in result.warnings]
    lines = "; ".join(f"line {at} is no whole record" for at in (2, 3, 4))
    assert first == f"200,000 lines are passed over; the first: {lines}"
    assert [other.partition(":")[0] for other in others] == [f"line 20000{at}" for at in (2, 3, 4)]


def test_what_holds_no_run_or_two_is_refused() -> None:
    for lines in ([], ["\n"], ['{"kind":"ru'], ["{}"], ["[1]"]):
        with pytest.raises(FormatError):
            parse(lines)
    with pytest.raises(FormatError, match="line 2: a second run in one file"):
        parse([to_line(run()), to_line(run())])


NEITHER: dict[str, Any] = {"unit": "ns", "better": "lower"}
SLOTS: dict[str, Any] = {"unit": "ns", "sub_bits": 10, "max": 5, "index": [999_999], "count": [1]}
HISTOGRAM = {**NEITHER, "histogram": SLOTS}


def latency(index: list[int], count: list[int], most: int, unit: str = "ns") -> dict[str, Any]:
    """Read the latencies of a trial of 300 requests, as they are stored."""
    slots = {**SLOTS, "unit": unit, "index": index, "count": count, "max": most}
    return {"unit": unit, "better": "lower", "histogram": slots}


def course(**changes: object) -> dict[str, Any]:
    """Two seconds of a load, in which three requests were due and one failed; None: deleted."""
    timed = {**SLOTS, "index": [5]}
    sound = {
        **{"due": [2, 1], "sent": [2, 1], "answered": [1, 1], "ended": [1, 1], "waiting": [0, 0]},
        **{"failed": {"status": [1, 0]}, "latency": [timed, timed], "losses": 1},
    }
    return {name: value for name, value in {**sound, **changes}.items() if value is not None}


HOST = {"cores": 2, "cpu_percent": 180.0, "steal_percent": 0.0}
NODE: dict[str, Any] = {
    **{"node": "a", "ip": "192.0.2.1", "hostname": "host", "url": "http://192.0.2.1/"},
    **{"client": "raw", "connections": 1, "seconds": 1.0, "completed": 300, "failed": {}},
    **{"rate": 300.0, "latency_ns": {}},
}
COUNTS = {"sent": 9, "completed": 3, "failed": {"reset": 2}, "in_flight": 1}


def wrong(path: str, value: object) -> dict[str, Any]:
    data = to_json(trial(FIRST))
    *parents, name = path.split(".")
    place = data
    for parent in parents:
        place = place[parent]
    place[name] = value
    return data


@cases(
    "path, value, message",
    ("key", 3, "trial.key: expected str, got int"),
    ("metrics.throughput.better", "up", "trial.metrics[...].better: invalid enum value 'up'"),
    ("window_s", 2**70, "trial.window_s: expected int <= 9223372036854775807"),
    ("client", {"status_codes": {"x": 1}}, "trial.client.status_codes: expected int, got str"),
    ("metrics.latency", HISTOGRAM, "trial.metrics[...].histogram.index[0]: expected int <= "),
    ("metrics.throughput.windows", [], "metrics[...].windows: expected array of length"),
    ("metrics.latency", latency([5, 3], [1, 299], 5), "metrics.latency: the slots of a hist"),
    ("metrics.latency", latency([3, 3], [1, 299], 3), "metrics.latency: the slots of a hist"),
    ("metrics.latency", latency([3, 5], [0, 300], 5), "metrics.latency: the slots of a hist"),
    ("metrics.latency", latency([3, 5], [1, 299], 9), "metrics.latency: its max is 9, which"),
    ("metrics.latency", latency([3, 5], [1, 298], 5), "metrics.latency: its counts do not"),
    ("metrics.latency", latency([3], [300], 3, "us"), "metrics.latency: its unit is us, not"),
    ("course", {"latency": [{**SLOTS, "index": [3]}]}, "course.latency[0]: its max is 5"),
    ("course", course(due=[2]), "course.sent: 2 seconds of 1"),
    ("course", course(failed=None), "course.losses: 1, where 0 failed"),
    ("course", course(failed={"reset": [1]}), "course.failed.reset: 1 seconds of 2"),
    ("course", course(due=[1, 1]), "course.due: fewer in second 0 than were answered and failed"),
    ("course", course(latency=[None, None]), "course.latency: second 0 has not 1 answers"),
    ("course", course(waiting=[0, 9]), "course.waiting: more in second 1 than were due"),
    ("course", course(ended=[3, 0]), "course.ended: more than were answered"),
    ("course", course(losses=0), "course.losses: 0, where 1 failed"),
    ("usage", {"host": {**HOST, "cpu_percent": 600.0}}, "usage.host: 600 % of 2 cores"),
    ("client", {"nodes": [NODE, NODE]}, "client.nodes: a node stands there twice"),
    ("metrics.throughput.unit", "MB", "metrics.throughput: its unit is MB, not requests/s"),
    ("counts.sent", 299, "trial.counts: sent is not the sum of completed, failed and in_fl"),
    ("client", {"total": COUNTS}, "trial.client.total: sent is not the sum of completed"),
    ("client", {"in_windows": COUNTS}, "trial.client.in_windows: sent is not the sum of"),
    ("metrics.throughput.windows", [99.0], "throughput: 99 requests by its windows, 300"),
    ("window_s", 2.0, "trial.metrics.throughput: 600 requests by its windows, 300 by the"),
    ("metrics.throughput", NEITHER, "metrics[...]: a metric holds either windows or"),
)
def test_a_field_of_another_type_is_named(path: str, value: object, message: str) -> None:
    assert message in refusal(from_json, wrong(path, value))


NOT_WHOLE, NESTED = " is no whole record", ": teardown.seconds is nested too deeply"
NOT_NUMBER = ": teardown.seconds: expected int | float, got str"
#: json of Python 3.11 does not read so deep a list, a later one does.
DEEP = NOT_WHOLE if sys.version_info < (3, 12) else NESTED


@cases(
    "number, message",
    *((number, NOT_NUMBER) for number in ("NaN", "-Infinity", "1e999")),
    ("9" * 5000, NOT_WHOLE),
    ("[" * 3000 + "]" * 3000, DEEP),
    ("[" * 200_000 + "]" * 200_000, NOT_WHOLE),
    ("[" * 300 + "]" * 300, NESTED),
)
def test_a_record_with_what_is_no_number_costs_itself_alone(number: str, message: str) -> None:
    bad = '{"kind":"teardown","launch":"1","killed":0,"clean":true,"seconds":' + number + "}"
    result = parse([to_line(run(FIRST)), bad, to_line(launch())])
    (warning,) = result.warnings
    assert warning.message == f"line 2{message}: passed over" and len(result.launches) == 1
    with pytest.raises(FormatError, match="line 1"):
        parse([bad])


@cases(
    "path",
    *("client.verdict", "client.busy_s", "client.nodes", "client.asked.timeout_s", "usage.host"),
    *("usage.host.cores", "waits.replicas", "slices.bounds", "course.due", "limits.A", "flags.cut"),
)
def test_a_null_says_nothing_and_costs_the_record(path: str) -> None:
    """What is not known is left out, in these places."""
    part, *inner = path.split(".")
    value: Any = None
    for name in inner[::-1]:
        value = {name: value}
    assert f".{path.replace('.A', '[...]')}: expected " in refusal(from_json, wrong(part, value))


@cases("path, value", ("variant", "other"), ("round", 9), ("cell", {}), ("row.label", "77 users"))
def test_a_trial_unlike_the_planned_one_of_its_key_is_passed_over(path: str, value: object) -> None:
    assert parse([to_line(run(FIRST)), to_line(trial(FIRST))]).warnings == ()
    result = parse([to_line(run(FIRST)), json.dumps(wrong(path, value))])
    (warning,) = result.warnings
    assert warning.message == f"line 2: trial.{path}: is not that of the plan: passed over"
    assert not result.trials


def test_a_profiled_trial_neither_replaces_nor_counts_as_measured() -> None:
    result = result_of([run(FIRST), trial(FIRST, 1.0), RESUME, trial(FIRST, 2.0)])
    assert [kept.metrics["throughput"].windows for kept in result.trials] == [(2.0,)]  # the latest
    result = result_of([run(FIRST, SECOND), trial(FIRST, 1.0), trial(FIRST, 9.0, profiled=True)])
    assert [kept.metrics["throughput"].windows for kept in result.trials] == [(1.0,)]
    assert len(result.profiled) == 1
    alone = result_of([run(FIRST), trial(FIRST, 9.0, profiled=True)])
    assert alone.missing == (FIRST,)


def test_complete_needs_every_trial_and_no_failure() -> None:
    result = result_of([run(FIRST, SECOND, third := planned(row=ROWS[2])), trial(SECOND)])
    assert result.missing == (FIRST, third) and not result.complete
    assert result_of([run(FIRST), trial(FIRST)]).complete
    worker = Failure("worker", "worker 1 died", AT, key=FIRST.key)
    assert not result_of([run(FIRST), worker, trial(FIRST)]).complete
    # A launch that broke off is mended by measuring the rest.
    failure = Failure("launch", "the cluster ended", AT, variant="default", round=1)
    start: list[Record] = [run(FIRST, SECOND), trial(FIRST), failure, RESUME]
    assert result_of(start).failures == (failure,)
    assert result_of([*start, trial(SECOND)]).complete
    left = Failure("teardown", "1 process left", AT)  # is never mended
    assert result_of([run(FIRST), left, RESUME, trial(FIRST)]).failures == (left,)


@cases(
    "failure",
    Failure("trial", "no answer", AT, key=FIRST.key),
    Failure("launch", "no start", AT, variant="default", round=1),
    Failure("deploy", "no replica", AT, variant="default", round=1, cell=cell()),
    ids=lambda failure: failure.what,
)
def test_a_failure_is_mended_only_by_measuring_after_a_resume(failure: Failure) -> None:
    same_sitting = result_of([run(FIRST), failure, trial(FIRST)])
    assert same_sitting.failures == (failure,)
    assert result_of([run(FIRST), failure, RESUME, trial(FIRST)]).failures == ()
    halfway = result_of([run(FIRST, SECOND), failure, RESUME, trial(SECOND)])
    assert halfway.failures == (failure,)


def test_keys_are_stable_and_tell_cells_apart() -> None:
    assert trial_key("default", 1, cell(1, 10000, 8), "100 connections") == (
        "default/r1/bs1-ongoing10000-rep8/100-connections"
    )
    assert cell_slug({"num_replicas": 2, "b": 1, "a": "x"}) == "rep2-a=x-b=1"
    assert cell_slug({}) == "app"
    assert cell_slug({**cell(), "body_type": "str"}) == "bs1-ongoing1-rep1-body_type=str"
