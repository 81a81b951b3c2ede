"""The forms of report, of hand-checkable records.

tests/golden/records.jsonl: two variants, two cells, three rows; windows are mean ± std by turns;
of the responses 90 % took some time, 9 % 1.25 times that and 1 % 2.5 times; the first cell of
`default` has the published figures. One row has errors, one a client at its limit, one failed. Four
rows have samples of CPU: nothing full, a proxy at its core, a client at its core, one slot for all.
classic.txt is what the published benchmark prints of it, digit for digit.
"""

import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from scripts.corpus import list_runs, report
from serve_bench.analysis.statistics import MAIN
from serve_bench.benchmarks.perf_metrics import perf_metrics
from serve_bench.benchmarks.scale.spec import WORKLOADS
from serve_bench.core.histogram import Histogram
from serve_bench.core.ladder import COLLAPSE
from serve_bench.core.result import Failure, Metric, PlannedTrial, Result, Trial, result_of
from serve_bench.report import COMPARED, FORMATS
from serve_bench.report.comment import escape
from serve_bench.report.page import html_text
from serve_bench.report.terminal import terminal
from serve_bench.store import read
from serve_bench.view.document import Number, Table, Text
from serve_bench.view.published import published_for
from serve_bench.view.rows import make_page
from serve_bench.view.slo import judged_rows, read_slo, reasons
from tests import places
from tests.cases import Patch, cases, refusal
from tests.records import (
    AT,
    ROWS,
    cell,
    changed,
    launch,
    planned,
    press_result,
    rpc_result,
    rpc_suite,
    rpc_world,
    run,
    stored,
    trial,
    worker,
)
from tests.rendering import render
from tests.scale_records import scale_result, scale_suite
from tests.sheet_parts import as_lines, at, is_sound, make_sheet, part, select
from tests.verdict_trials import serving

GOLDEN = places.GOLDEN

#: The example of the published README, character for character.
AS_PUBLISHED = """\
{'max_batch_size': 1, 'max_concurrent_queries': 1, 'num_replicas': 1}:
        single client small data 629.38 +- 5.34 requests/s
        8 clients small data 888.99 +- 14.0 requests/s
"""


@pytest.fixture(scope="module")
def golden() -> Result:
    return read(GOLDEN / "records.jsonl")


def test_classic_is_the_published_form(golden: Result) -> None:
    text = render(golden, "classic")
    assert text == (GOLDEN / "classic.txt").read_text(encoding="utf-8")
    # Of one variant alone it has no heading of variants.
    plan = tuple(at for at in golden.run.plan if at.variant == "default")
    trials = tuple(at for at in golden.trials if at.variant == "default")
    default = replace(golden, run=replace(golden.run, plan=plan), trials=trials)
    assert render(default, "classic").startswith(AS_PUBLISHED)
    beside = "888.99 +- 14.0 requests/s (published 888.99 +- 14.0 requests/s)\n"
    assert beside in render(default, "classic", published=True)
    assert "connections" not in text
    for row, said in (
        (replace(ROWS[0], data_size="large"), "single client large data 100.0 +- 8.16 requests/s"),
        (replace(ROWS[0], data_size="4096"), "single client 4096 bytes data 100.0 +- 8.16 req"),
        (ROWS[2], "no row of the published form was planned"),
    ):
        at = planned(row=row)
        assert said in render(result_of([run(at), trial(at)]), "classic")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_color_is_for_terminals_that_want_it(monkeypatch: Patch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "97")
    assert terminal(Terminal()) == (97, True)
    assert terminal(io.StringIO()) == (97, False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert terminal(Terminal()) == (97, False)
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert terminal(Terminal())[1] is False


def everywhere(result: Result) -> dict[str, str]:
    """Render all forms, each as one line, so that wrapping hides nothing."""
    return {name: " ".join(render(result, name).split()) for name in FORMATS}


@cases(
    "what, place",
    ("launch", {"variant": "default", "round": 1}),
    ("deploy", {"variant": "default", "cell": cell()}),
    ("trial", {"key": planned().key}),
    ("teardown", {}),
    ("trial", {"key": "of another plan"}),
    ("launch", {"variant": "of another plan"}),
)
def test_a_failure_is_shown_wherever_it_struck(what: Any, place: dict[str, Any]) -> None:
    failure = Failure(what, "no such thing as a raylet", AT, **place)
    result = result_of([run(planned()), failure])
    shown = {name: failure.message in text for name, text in everywhere(result).items()}
    assert shown == dict.fromkeys(FORMATS, True)


def test_a_profiled_row_is_marked_and_enters_nothing() -> None:
    at = planned()
    result = result_of([run(at), trial(at, 100.0, 100.0, 100.0), trial(at, 7.0, profiled=True)])
    for name in ("table", "markdown", "csv", "json"):
        assert "profiled" in render(result, name)
    assert "single client small data 100.0 +- 0.0" in render(result, "classic")
    assert "7.0" not in render(result, "classic")
    names = [item["perf_metric_value"] for item in json.loads(perf_metrics(result))["perf_metrics"]]
    assert names == [100.0]


def sampled(at: PlannedTrial, proxy: float, *, profiled: bool = False) -> Trial:
    """Sample a trial of 100 connections whose proxy used so many % of a core."""
    usage = serving((proxy,), (20.0,), host=proxy + 30.0, cores=4)
    return changed(trial(at, 100.0, 100.0, 100.0, profiled=profiled), usage=usage)


def test_a_row_without_samples_and_a_profiled_one_have_no_verdict() -> None:
    at = planned(row=ROWS[2])
    bare = result_of([run(at), trial(at), sampled(at, 97.0, profiled=True)])
    for name, text in everywhere(bare).items():
        assert "limited by" not in text, name
    (entry, profiled) = make_page(bare).rows
    assert (entry.limited, profiled.limited) == (None, None)


def test_launches_that_disagree_are_counted() -> None:
    rounds = [planned(row=ROWS[2], round_=at, of=cell(1, 10000, 1)) for at in (1, 2, 3)]
    shares = (97.0, 20.0, 96.0)
    trials = [sampled(at, share) for at, share in zip(rounds, shares, strict=True)]
    result = result_of([run(*rounds), *trials])
    assert " proxy CPU, in 2 of 3 launches" in render(result, width=200)
    (entry,) = json.loads(render(result, "json"))["rows"]
    causes = {launch: verdict["cause"] for launch, verdict in entry["limited_by"].items()}
    assert [*causes.values()] == ["proxy CPU", "offered load", "proxy CPU"]


def test_published_figures_stand_only_beside_rows_like_theirs() -> None:
    rows = [
        planned(row=ROWS[0]),
        planned(row=replace(ROWS[0], data_size="large")),
        planned(row=replace(ROWS[0], client="raw")),
        planned(row=ROWS[0], of=cell(16, 1, 1)),
        planned(row=ROWS[2], of=cell(1, 10000, 8)),
    ]
    shown = [at.row for at in rows if published_for(at.cell, at.row) is not None]
    assert shown == [ROWS[0], ROWS[2]]


def test_perf_metrics_are_those_of_the_release_tooling(golden: Result) -> None:
    content = json.loads(perf_metrics(golden))
    found = {metric["perf_metric_name"]: metric for metric in content["perf_metrics"]}
    assert len(found) == len(content["perf_metrics"]) == 11 * 3
    assert found["default_bs1_ongoing1_rep1_single_client_throughput_requests_per_s"] == {
        "perf_metric_name": "default_bs1_ongoing1_rep1_single_client_throughput_requests_per_s",
        "perf_metric_value": pytest.approx(629.38),
        "perf_metric_type": "THROUGHPUT",
    }
    p99 = found["default_bs1_ongoing10000_rep8_100_connections_latency_p99_ms"]
    # 100 connections at 2000/s, 0.95 of 50 ms; the 99th percentile is 1.25 times that.
    assert p99["perf_metric_value"] == pytest.approx(47.5 * 1.25, rel=0.001)
    assert p99["perf_metric_type"] == "LATENCY"
    assert content["not_measured"] == ["optimized/r1/bs1-ongoing10000-rep8/100-connections"]


def test_perf_metrics_leave_broken_rows_out_and_name_what_is_known_to_be_higher() -> None:
    rows = [planned(row=row) for row in ROWS[:2]]
    answered = Histogram.of([5_000_000] * 90).encode()
    given_up = Metric("ns", "lower", histogram=Histogram.of([9_000_000] * 10).encode())
    good, bad = (trial(at, latency=answered) for at in rows)
    good = replace(good, metrics={**good.metrics, "censored": given_up})
    died = Failure("trial", "a replica ended during the trial", AT, key=bad.key)
    content = json.loads(perf_metrics(result_of([run(*rows), launch(), good, bad, died])))
    assert content["broken"] == [bad.key]
    names = [perf_metric["perf_metric_name"] for perf_metric in content["perf_metrics"]]
    assert [name.rpartition("single_client_")[2] for name in names] == [
        *("throughput_requests_per_s", "latency_p50_ms", "latency_p99_ms")
    ]
    assert content["lower_bounds"] == [names[2]]


def test_what_differs_from_what_was_asked_is_marked_on_the_page() -> None:
    why = "43 connections instead of 100: slices would be too long"
    client = {"workers": [worker(43)], "stretched": why, "notes": ["no epoll"]}
    plan = planned(row=ROWS[2])
    sheet = make_sheet(result_of([run(plan), launch(), trial(plan, client=client)]))
    table, _ = select(part(sheet, "method"), Table)
    (row,) = table.rows
    name = row.cells[0]
    assert isinstance(name, Text) and name.below == (why, "no epoll")
    assert row.cells[at(table, "connections")] == Number("43 of 100", 43)


NEVER = Failure("launch", "the port is taken", AT, variant="default", round=1)
PRESS = press_result(others=[NEVER])
UNMEASURED: Final[dict[str, Result]] = {
    "micro": result_of([run(planned()), NEVER]),
    "press": replace(PRESS, run=replace(PRESS.run, plan=(planned(),))),
    "rpc": rpc_result(rpc_suite([rpc_world(10)]), others=[replace(NEVER, variant="torch")]),
    **{workload: scale_result(scale_suite(workload), others=[NEVER]) for workload in WORKLOADS},
}


@pytest.mark.parametrize("format", COMPARED)
@pytest.mark.parametrize("kind", UNMEASURED)
def test_a_run_of_which_nothing_was_measured_still_says_so(kind: str, format: str) -> None:
    text = render(UNMEASURED[kind], format)
    assert text.endswith("\n") and ("not measured" in text or "not_measured" in text)
    assert NEVER.message in text


#: Kinds whose comment has another layout.
APART: Final = ("versus", "tax", "soak", "timeline")
STORED: Final = [
    file.stem.removeprefix("2-")
    for file in sorted(places.FORMATS.glob("2-*.jsonl"))
    if not file.stem.removeprefix("2-").startswith(APART)
]


@pytest.mark.parametrize("name", STORED)
def test_what_was_found_is_said_as_on_the_page_and_gaps_come_first(name: str) -> None:
    result = stored(name)
    text = render(result, "markdown")
    page = make_sheet(result)
    is_sound(page)
    sentences = as_lines(page.findings)
    assert all(escape(sentence) in text for sentence in sentences)
    first, missing = text.split("\n")[0], result.missing or result.failures
    assert escape(sentences[0]) in first
    assert not missing or "incomplete" in first or "failed" in first


def test_names_and_messages_break_neither_table_nor_fold() -> None:
    odd = "a|b\nc"
    at = planned(odd, replace(ROWS[0], label="<b>"))
    other = planned("plain", replace(ROWS[0], label="<b>"))
    struck = Failure("trial", "</details>\n* **no**", AT, key=other.key)
    made = result_of([run(at, other), trial(at), struck])
    text = render(made, "markdown")
    table = [line for line in text.partition("<details>")[0].split("\n") if line.startswith("| ")]
    assert len(table) == 4 and len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1
    assert "a\\|b c" in table[2]
    assert "&lt;/details> \\* \\*\\*no\\*\\*" in text
    assert text.count("</details>") == text.count("<details>")


CONTRADICTORY: Final = (
    (r"the SLO holds all along", r"[1-9][\d.]* of \d+ s are out of the SLO"),
    (r"[Ss]omething failed: no request succeeded", r"(?<!\d)[1-9][\d,.]*( ± [\d,.]+)? requests/s"),
    (r"(?i)client: (not|never) the limit", r"(all|both) \d* ?connections were busy"),
    (r"more clients (would )?bring more", r"collapses? with"),
)
"""Pairs that stood in one output."""


def contradictions(text: str) -> list[str]:
    """List the pairs of which both stand in a text."""
    return [f"{a} / {b}" for a, b in CONTRADICTORY if re.search(a, text) and re.search(b, text)]


@pytest.mark.parametrize("name", list_runs())
def test_sentences_of_stored_runs_agree(name: str, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    shutil.copy(list_runs()[name], tmp_path / "records.jsonl")
    text = report(str(tmp_path))
    findings = [line for line in text.split("\n\n")[0].splitlines() if line[:2] not in ("! ", "x ")]
    assert findings and all(line.endswith(".") for line in findings)
    assert not contradictions(text)


@cases("name", *(name for name in list_runs() if name.startswith(("micro", "run"))))
def test_no_row_is_offered_load_that_others_refute(name: str, tmp_path: Path) -> None:
    """Where more of the same clients get fewer answers, they were not too few."""
    shutil.copy(list_runs()[name], tmp_path / "records.jsonl")
    ladders: dict[str, list[tuple[int, float, str]]] = {}
    for entry in make_page(read(tmp_path)).rows:
        line, cause = entry.line, "" if entry.limited is None else entry.limited.cause
        if MAIN in line.spreads and line.row.loop == "closed":
            place = f"{line.variant} {line.cell} {line.row.client}"
            step = (line.row.connections, line.spreads[MAIN].value, cause)
            ladders.setdefault(place, []).append(step)
    for rows in ladders.values():
        for clients, rate, limit in rows:
            more = [other for other in rows if other[0] > clients]
            assert limit != "offered load" or all(other[1] >= COLLAPSE * rate for other in more)


SLO: Final = "p50=20ms,errors=0.1%,goodput=90%@50ms"

NAMES: Final = (
    *("load-open", "load-profiled", "micro", "micro-failures", "noop", "run-options", "sweep"),
    *("sweep-url", "recsys-url-errors", "press-url-collapse", "scale-single", "scale-ensemble"),
    *("scale-curve", "scale-lost-node"),
)


def judged_run(name: str, slo: str | None = SLO) -> Result:
    result = stored(name)
    suite = {**result.run.suite, **({} if slo is None else {"slo": slo})}
    return replace(result, run=replace(result.run, suite=suite))


@pytest.mark.parametrize("name", NAMES)
def test_every_row_has_a_verdict_but_not_where_no_slo_is(name: str) -> None:
    plain, given = judged_run(name, None), judged_run(name)
    rows = judged_rows(given)
    assert rows and {row.word for row in rows} <= {"met", "missed", "not judged"}
    data = json.loads(render(given, "json"))["rows"]
    judged = [row["slo"]["verdict"] for row in data if row["dims"]["status"] != "profiled"]
    assert sorted(judged) == sorted(row.word for row in rows)
    assert not any("slo" in row for row in data if row["dims"]["status"] == "profiled")
    if plain.run.command == "micro":
        assert render(given, "classic") == render(plain, "classic")
    assert perf_metrics(given) == perf_metrics(plain)
    assert judged_rows(plain) == () and read_slo(plain.run) is None
    assert '"slo": {' not in render(plain, "json") and "Service level" not in render(plain)
    assert ",slo," not in render(plain, "csv")


def test_every_form_has_the_verdicts() -> None:
    result = judged_run("micro")
    table = render(result, verbose=True)
    part = table[table.index("Service level objectives\n") :].split("\n\n")[0]
    assert part.count("missed") == sum(row.word == "missed" for row in judged_rows(result))
    assert "| row | p50 &lt;= 20 ms" in render(result, "markdown")
    assert ",slo," in render(result, "csv")
    page = html_text([make_sheet(result)])
    assert page.count('<section id="slo"') == 1 and "slo: p50 &lt;= 20 ms" in page


def micro(slo: str, *p50_ms: float) -> Result:
    """Rows of one cell with 200 requests each, all of the same latency; of 0 ms: not measured."""
    plan = [planned(row=row) for row in ROWS[: len(p50_ms)]]
    trials = [
        trial(at, 200.0, latency=Histogram.of([round(ms * 1e6)] * 200).encode())
        for at, ms in zip(plan, p50_ms, strict=True)
        if ms
    ]
    first = replace(run(*plan), suite={"slo": slo})
    return result_of([first, *trials])


def test_a_row_that_was_not_measured_is_not_judged() -> None:
    rows = judged_rows(micro("p99=50ms", 10.0, 0.0))
    words = {row.name: row.word for row in rows}
    assert words == {"single client": "met", "8 clients": "not judged"}
    assert reasons(rows, "not judged") == "8 clients: not measured"
    assert reasons(rows, "missed") == ""


def test_the_name_of_a_row_tells_it_from_all_others() -> None:
    plan = [
        planned(variant, row, of=cell(replicas=replicas))
        for variant in ("default", "optimized")
        for replicas in (1, 8)
        for row in ROWS[:2]
    ]
    result = result_of([replace(run(*plan), suite={"slo": "mean=1s"}), trial(plan[0])])
    names = [row.name for row in judged_rows(result)]
    assert names[0] == "single client, replicas 1, default" and len(set(names)) == len(plan)


def test_an_slo_that_a_hand_has_changed_is_one_line() -> None:
    assert refusal(render, micro("p99", 10.0)).startswith("suite.slo: 'p99' is not allowed")
