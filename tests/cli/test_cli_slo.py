from dataclasses import replace
from pathlib import Path

import pytest

from serve_bench.cli import sitting
from serve_bench.cli.exits import close_host
from serve_bench.cli.options import RunOptions
from serve_bench.core.errors import BadInput
from serve_bench.core.result import Result, result_of
from serve_bench.store import read
from tests import records
from tests.cases import Call, Capture, Patch, Refuses, cases
from tests.core.test_kept import store_with
from tests.places import FORMATS, TOP
from tests.records import changed
from tests.rendering import render
from tests.servers import every_nth, serving

pytestmark = pytest.mark.process

COMMANDS = (
    *("load http://h/", "micro", f"run {TOP}/examples/own_app/shop.py:app", "sweep", "recsys"),
    *("sweep --url a=http://h/", "press", "press --url a=http://h/", "scale single", "noop"),
)


def test_every_command_refuses_a_bad_one(refuses: Refuses) -> None:
    for command in COMMANDS:
        refuses(f"{command} --slo p99=50", "--slo: p99=50 is not allowed; it takes a time with its")
        refuses(f"{command} --slo ttft_p95=1s", "--slo: ttft_p95: is measured of streams alone")


def test_the_slo_of_a_suite_file(beside: Path, call: Call, refuses: Refuses) -> None:
    file = beside / "own.toml"
    file.write_text('name = "own"\nslo = "p99 = 50ms"\n')
    micro = ("micro", "--dry-run", "--suite", file)
    assert call(*micro)[0].endswith("\nslo: p99 <= 50 ms, errors <= 1 % (default)\n")
    assert call(*micro, "--slo", "errors=0")[0].endswith("\nslo: errors <= 0 %\n")
    assert "slo" not in call("micro", "--dry-run")[0]
    refuses(f"versus --suite {file}", "own.toml: slo: versus compares sides, and judges no SLO")
    file.write_text('slo = "p99"')
    refuses(f"micro --suite {file}", "own.toml: slo: 'p99' is not allowed")
    shipped = (TOP / "scenarios" / "scale_single.toml").read_text()
    file.write_text(shipped.replace("[scale]", 'slo = "p50=1s,errors=0"\n[scale]', 1))
    out, _ = call("scale", "single", "--suite", file, "--quick", "--dry-run")
    assert out.endswith("\nslo: p50 <= 1 s, errors <= 0 %\n")


def test_a_resumed_run_keeps_its_own(beside: Path, call: Call, refuses: Refuses) -> None:
    resume = store_with(beside, slo="p99=50ms").split()
    for flags in ([], ["--slo", "p99=50ms"]):
        out, _ = call(*resume, "--dry-run", *flags)
        assert out.endswith("\nslo: p99 <= 50 ms, errors <= 1 % (default)\n")
    for stored, slo in ((beside, "p99=50ms"), (FORMATS / "2-micro.jsonl", "none; leave it out")):
        refuses(f"micro --resume {stored} --slo p99=1s", f"a run keeps its own, which is {slo}")


@cases(
    "slo, code, line",
    ("p99=20s,errors=5%", 0, ""),
    ("p99=20s", 3, "slo: 1 connection: errors 2 % is above 1 % (-100 %)"),
    ("p50=1ms,errors=5%", 3, "slo: 1 connection: p50 "),
    ("goodput=99%@20s,errors=5%", 3, "slo: 1 connection: goodput 98 % is below 99 % (-1.00 po"),
    ("p99.9=20s,errors=5%", 1, "slo: not judged: 1 connection: p99.9 needs 1,000 requests, 98"),
)
def test_exit_codes_of_an_slo(slo: str, code: int, line: str, tmp_path: Path, call: Call) -> None:
    """2 of 100 fail: more than the 1 % that a load allows, where no SLO says otherwise."""
    slo, folder = slo.replace("p99=", "p90="), tmp_path / "run"
    with serving(every_nth(50, "error500"), delay_s=0.002) as server:
        words = ("load", server.url, "-c", "1", "-n", "100", "--out", folder, "--slo", slo)
        out, err = call(*words, code=code)
    last = [said for said in err.splitlines() if said.startswith("slo: ")]
    assert [said.startswith(line) for said in last] == [True] * bool(code)
    assert "failed, more" not in err
    word = {0: "met", 3: "missed", 1: "not judged"}[code]
    assert f"\nslo: {slo.split('=')[0]} " in out and word in out
    assert read(folder).run.suite == {"slo": slo} and call("report", folder)[0] == out


def measured(slo: str, missing: bool) -> Result:
    plan = [records.planned(row=row) for row in records.ROWS[:2]]
    trials = [records.trial(load, failed={"status": 3}) for load in plan[: 1 if missing else 2]]
    return result_of([replace(records.run(*plan), suite={"slo": slo}), *trials])


@cases(
    "slo, missing, interrupted, code",
    ("errors=5%", False, False, 0),
    ("errors=0", False, False, 3),
    ("errors=0", True, False, 3),  # what was measured misses it, whatever is missing
    ("errors=5%", True, False, 1),
    ("p50=1s,errors=5%", False, False, 1),  # the trials have no histogram
    ("errors=0", False, True, 130),
)
def test_the_end_of_a_run(
    slo: str, missing: bool, interrupted: bool, code: int, monkeypatch: Patch, capsys: Capture
) -> None:
    outcome = sitting.Outcome(Path("r"), measured(slo, missing), missing, interrupted)
    monkeypatch.setattr(sitting, "outcome_of", lambda _: outcome)

    plan = sitting.Sitting({}, [], pytest.fail, again="micro")  # type: ignore[arg-type]
    assert sitting.sit(plan, RunOptions(), lambda *_: 0) == code
    err = capsys.readouterr().err
    missed = "slo: single client: errors 0.99 % is above 0 %"
    assert err.startswith(missed) == (code == 3)
    assert ("slo: not judged: " in err) == (code == 1 or missing)
    assert ("incomplete; resume: " in err) == missing


@cases(
    "typical, code, words",
    (56.0, 3, "strict host: Not a fair measurement: python x.py (pid 7) used 56 % of a core."),
    (15.0, 0, ""),
    (None, 1, "strict host: not judged: 1 trial"),
)
def test_a_strict_host(typical: float | None, code: int, words: str, capsys: Capture) -> None:
    programs = [{"program": "python x.py", "pid": 7, "processes": 1, "cpu_percent": typical or 0}]
    others = {"typical_percent": typical, "programs": programs}
    result = measured("errors=50%", missing=True)
    usage = {} if typical is None else {"others": others}
    result = replace(result, trials=tuple(changed(trial, usage=usage) for trial in result.trials))
    assert close_host(result) == code
    assert capsys.readouterr().err.startswith(words)
    plan = sitting.Sitting({}, [], lambda _: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(BadInput, match="--strict-host: needs the samples"):
        sitting.sit(plan, RunOptions(strict_host=True, no_sample=True), lambda *_: 0)
    text = render(result)
    assert ("Not a fair measurement" in text and "other-programs" in text) == (code == 3)
