"""The command on flags with planted effects: what it plans, measures, keeps, says, goes on with."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from serve_bench.benchmarks.flags import facts
from serve_bench.cli import sitting as sittings
from serve_bench.cli.program import run
from serve_bench.cli.sitting import Outcome, Place, Sitting, run_record
from serve_bench.core.result import PlannedTrial, Resume
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.store import RunFolder, read
from tests.records import AT
from tests.versus_records import sliced

SIX = [word for x in "ABCDEF" for word in ("--env", f"SWITCH_{x}=1")]
OF_DEFAULT = ["flags", "--of", "default", *SIX]
PLANTED = {"b": -0.06, "e": 0.12}


def serve(env: Mapping[str, str]) -> dict[str, Any]:
    """A Serve with four constants: one is set by a macro, one brings another one, one follows."""
    macro = env.get("RAY_SERVE_THROUGHPUT_OPTIMIZED") == "1"
    proxy = env.get("RAY_SERVE_ENABLE_HA_PROXY") == "1"
    ingress = env.get("RAY_SERVE_ENABLE_DIRECT_INGRESS", "1" if macro else "0") == "1"
    buffer = int(env.get("RAY_SERVE_REQUEST_PATH_LOG_BUFFER_SIZE", 1000 if macro else 1))
    return {
        "RAY_SERVE_ENABLE_HA_PROXY": proxy,
        "RAY_SERVE_ENABLE_DIRECT_INGRESS": ingress or proxy,
        "RAY_SERVE_REQUEST_PATH_LOG_BUFFER_SIZE": buffer,
        "RAY_SERVE_BUFFERS": buffer > 1,  # no variable sets it
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": macro,
    }


@dataclass
class Fake:
    """In the place of clusters: the logarithm of what a flag does, by its letter. `stops`: rounds
    after which a Ctrl-C comes; `odd`: rounds whose second side is 30 %
    slow; `together`: of b and e beside."""

    effects: Mapping[str, float] = field(default_factory=lambda: PLANTED)
    sd: float = 0.01
    seed: int = 0
    stops: int = 10**6
    odd: Sequence[int] = ()
    together: float = 0.0
    measured: list[int] = field(default_factory=list)

    def outcome_of(self, sitting: Sitting) -> Outcome:
        assert sitting.out is not None
        if sitting.earlier is None:
            folder = RunFolder.create(sitting.out, now=datetime.now(UTC))
            folder.append(run_record(folder, "flags", tuple(sitting.plan), sitting.suite))
        else:
            folder, _ = RunFolder.resume(sitting.out)
            folder.append(Resume((), AT, rounds=sitting.rounds))
        plan: Any = sitting.work(Place(folder.path, "x", None))  # type: ignore[arg-type]
        left = {launch.round for launch in plan.launches}
        interrupted = False
        with folder:
            for round_ in sorted(left):
                interrupted = len(self.measured) >= self.stops
                if interrupted:
                    break
                self.measured.append(round_)
                both = [at for at in sitting.plan if at.round == round_]
                for place, at in enumerate(both):
                    slow = 0.7 if place and round_ in self.odd else 1.0
                    folder.append(sliced(at, 600.0 * slow * math.exp(self.log(at))))
        return Outcome(folder.path, read(folder.path), False, interrupted)

    def log(self, at: PlannedTrial) -> float:
        both = self.together * ({"b", "e"} <= {*at.variant})
        drawn = both + random.Random(f"{self.seed}/{at.key}").gauss(0, self.sd / math.sqrt(2))
        return drawn + sum(self.effects.get(x, 0.0) for x in at.variant if at.variant != "none")


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(facts, "_constants", lambda python, envs: [serve(one) for one in envs])


def use(monkeypatch: pytest.MonkeyPatch, fake: Fake) -> Fake:
    monkeypatch.setattr(sittings, "outcome_of", fake.outcome_of)
    return fake


def figures(capsys: pytest.CaptureFixture[str], folder: str = "run") -> dict[str, Any]:
    capsys.readouterr()
    assert run(["report", folder, "--format", "json"]) == 0
    whole: dict[str, Any] = json.loads(capsys.readouterr().out)
    return whole


def proven(whole: Mapping[str, Any]) -> dict[str, str]:
    return {
        one["effect"]: one["verdict"]
        for one in whole["effects"]
        if one["effect"].startswith("SWITCH_") and one["metric"] == "throughput"
        if one["verdict"] not in ("same", "inconclusive")
    }


@pytest.mark.long
def test_the_two_of_six_that_matter_are_named_in_nine_of_ten(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seeds are fixed. By its level one run in twenty names a third flag."""
    right = 0
    for seed in range(10):
        use(monkeypatch, Fake(seed=seed))
        assert run([*OF_DEFAULT, "--out", f"run{seed}"]) == 0
        whole = figures(capsys, f"run{seed}")
        right += proven(whole) == {"SWITCH_B": "regressed", "SWITCH_E": "improved"}
        effects = {(one["effect"], one["metric"]): one for one in whole["effects"]}
        assert effects["SWITCH_B", "throughput"]["high"] < 1 and len(whole["rounds"]) == 33
    assert right >= 9


def test_it_says_what_matters_in_every_form(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, Fake(odd=[9]))
    assert run([*OF_DEFAULT, "--out", "run"]) == 0
    told = capsys.readouterr()
    text = " ".join(told.out.split())
    assert "throughput: SWITCH_E 1.1" in text and "; no other is proven" in text
    assert "throughput, all on against none: 1.0" in text
    (off,) = re.findall(r"round 9 is left out: its throughput is (\S+) x", text)
    assert float(off) == pytest.approx(0.7, abs=0.005)
    assert "where rounds differ by 1 %, a flag that makes" in told.err
    for form in ("table", "markdown", "csv", "html"):
        to = ["--output", "page.html"] if form == "html" else []
        assert run(["report", "run", "--format", form, *to]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(",throughput,True,SWITCH_" in one for one in lines) == 6


def test_flags_that_work_together_are_told_as_a_pair(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, Fake(together=0.1))
    assert run([*OF_DEFAULT, "--out", "run"]) == 0
    assert "throughput, b x e together: 1.1" in " ".join(capsys.readouterr().out.split())
    whole = figures(capsys)
    (pair,) = [
        one for one in whole["effects"] if (one["effect"], one["metric"]) == ("b x e", "throughput")
    ]
    assert pair["low"] < math.exp(0.1) < pair["high"] and pair["verdict"] == "improved"


def test_the_flags_of_a_variant_are_what_serve_makes_of_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = facts.factorial_of(BUILT_IN_VARIANTS["optimized"], {}, True, 1)
    assert [(one.name, dict(one.env)) for one in whole.factors] == [
        ("RAY_SERVE_ENABLE_HA_PROXY", {"RAY_SERVE_ENABLE_HA_PROXY": "1"}),
        ("RAY_SERVE_ENABLE_DIRECT_INGRESS", {"RAY_SERVE_ENABLE_DIRECT_INGRESS": "1"}),
        (
            "RAY_SERVE_REQUEST_PATH_LOG_BUFFER_SIZE",
            {"RAY_SERVE_REQUEST_PATH_LOG_BUFFER_SIZE": "1000"},
        ),
    ]
    assert "100" not in whole.points and "110" in whole.points  # HAProxy brings direct ingress
    assert whole.terms[1] == ((0, 1),)
    assert run(["flags", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "note: a x b cannot be measured: of the two, one never goes without the other" in text
    assert "3 flags and 2 pairs in 17 rounds" in text


def test_it_goes_on_with_its_own_design_and_more_rounds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = use(monkeypatch, Fake(stops=7))
    assert run([*OF_DEFAULT, "--out", "run"]) == 130
    assert "not decided: 7 rounds tell no effect" in capsys.readouterr().out
    fake.stops = 10**6
    assert run([*OF_DEFAULT, "--resume", "run"]) == 0
    assert fake.measured == list(range(1, 34))
    assert run([*OF_DEFAULT, "--resume", "run", "--rounds", "+4"]) == 0
    assert fake.measured == list(range(1, 38))
    whole = figures(capsys)
    assert len(whole["rounds"]) == 37 and all(
        one["log_ratios"]["100 connections/throughput"] is not None for one in whole["rounds"]
    )
    assert run([*OF_DEFAULT, "--no-pairs", "--resume", "run"]) == 2
    assert "--resume: this is not the run in run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--of", "default"], "--of, --env: 0 flags: two or more are told apart"),
        (["--of", "default", "--env", "A=1"], "--of, --env: 1 flag: two or more"),
        (["--of", "nothing"], "--of: unknown variant 'nothing'"),
        (["--env", "A"], "--env: 'A' is not allowed; it takes NAME=VALUE"),
        (
            ["--env", "RAY_SERVE_REQUEST_PATH_LOG_BUFFER_SIZE=1"],
            "--env: RAY_SERVE_REQUEST_PATH_LOG_BUFFER_SIZE=1 is what Serve has anyway",
        ),
        (["--rounds", "5"], "--rounds: 5 is not allowed; 5 effects take 6 or more, or --no-pairs"),
        (["--rounds", "x"], "--rounds: 'x' is not allowed"),
        (
            [f"--env=X{n}=1" for n in range(12)],
            "--of, --env: 15 flags are too many; it takes 2 to 12",
        ),
        (["--format", "html"], "--format: 'html' is not allowed"),
        (["--budget", "x"], "--budget: 'x'"),
        (["--resume", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = [] if "--resume" in words else ["--out", "run"]
    assert run(["flags", *words, *out]) == 2
    told = capsys.readouterr()
    (error,) = [one for one in told.err.splitlines() if one.startswith("serve-bench:")]
    assert line in error and not Path("run").exists()


def test_records_that_are_damaged_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, Fake())
    assert run([*OF_DEFAULT, "--no-pairs", "--out", "run"]) == 0
    records = Path("run/records.jsonl")
    text = records.read_text()
    records.write_text(text.replace('"points":["000000"', '"points":["0x"', 1))
    assert records.read_text() != text
    capsys.readouterr()
    assert run(["report", "run"]) == 2
    assert "suite.factorial: its points are not levels of its factors" in capsys.readouterr().err
