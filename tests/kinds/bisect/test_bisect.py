"""The command on versions with planted rates: what it measures, keeps, says, and goes on with."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from serve_bench.benchmarks.bisect import drive, environments
from serve_bench.benchmarks.versus.request import VersusSuite, versus_plan
from serve_bench.cli.program import run
from serve_bench.cli.sitting import Outcome, Place, Sitting, run_record
from serve_bench.core.result import Resume
from serve_bench.store import RunFolder, read
from tests.kinds.bisect.test_environments import calls, program, repository
from tests.records import AT
from tests.versus_records import sliced

ENDS = ["--good", "ray==1.0", "--bad", "ray==1.3"]


@dataclass
class Fake:
    """In the place of clusters: requests/s by version, and what was measured. `stops`: rounds
    after which a Ctrl-C comes."""

    rate: Callable[[str], float]
    stops: int = 10**6
    measured: list[tuple[str, str, int]] = field(default_factory=list)

    def outcome_of(self, sitting: Sitting) -> Outcome:
        suite = VersusSuite.from_json(sitting.suite)
        assert sitting.out is not None
        if sitting.earlier is None:
            folder = RunFolder.create(sitting.out, now=datetime.now(UTC))
            folder.append(run_record(folder, "versus", tuple(sitting.plan), sitting.suite))
        else:
            folder, _ = RunFolder.resume(sitting.out)
            folder.append(Resume((), AT, rounds=sitting.rounds))
        plan: Any = sitting.work(Place(folder.path, "x", None))  # type: ignore[arg-type]
        rounds = {one.round: one for one in versus_plan(suite)}
        interrupted = False
        with folder:
            for place, launch in enumerate(plan.launches):
                interrupted = len(self.measured) >= self.stops
                if interrupted:
                    break
                names = suite.sides[0].label, suite.sides[1].label
                self.measured.append((names[1], names[0], launch.round))
                plan.expected_s(place, None)
                for one in rounds[launch.round].pairings:
                    for at in one.planned:
                        drawn = random.Random(f"{at.key}/{names}").gauss(1, 0.005)
                        folder.append(sliced(at, self.rate(at.variant) * drawn))
                if place + 1 < len(plan.launches) and (stop := plan.over()) is not None:
                    folder.append(stop)
                    break
        return Outcome(folder.path, read(folder.path), False, interrupted)

    @property
    def compared(self) -> list[tuple[str, str]]:
        return list(dict.fromkeys((version, base) for version, base, _ in self.measured))


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("shutil.which", lambda name: None)
    return program(tmp_path / "python")


def use(monkeypatch: pytest.MonkeyPatch, fake: Fake) -> Fake:
    monkeypatch.setattr(drive, "outcome_of", fake.outcome_of)
    return fake


def rates(step: str, loss: float = 0.1) -> Callable[[str], float]:
    return lambda name: 600.0 * (1 - loss if name >= step else 1)


def test_the_step_is_named_and_the_broken_version_skipped(
    base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = use(monkeypatch, Fake(rates("ray==1.1")))
    assert run(["bisect", *ENDS, "--python", str(base), "--out", "run"]) == 0
    told = capsys.readouterr()
    assert "the step is at ray==1.1: throughput 0." in " ".join(told.out.split())
    # 1.2 cannot be installed; both ends differ, and 1.1 from the good end: that is the step itself.
    assert fake.compared == [("ray==1.3", "ray==1.0"), ("ray==1.1", "ray==1.0")]
    assert "note: without uv" in told.err
    for form in ("table", "markdown", "csv", "html"):
        to = ["--output", "page.html"] if form == "html" else []
        assert run(["report", "run", "--format", form, *to]) == 0
    capsys.readouterr()
    assert run(["report", "run", "--format", "json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert whole["decided"] and (whole["last_good"], whole["first_bad"]) == ("ray==1.0", "ray==1.1")
    assert whole["step"]["low"] < 0.9 < whole["step"]["high"] < 0.95
    assert run(["report", f"run/{whole['step']['folder']}"]) == 0


def test_a_step_behind_a_broken_version_is_compared_with_the_last_good_one(
    base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = use(monkeypatch, Fake(rates("ray==1.2")))
    assert run(["bisect", *ENDS, "--python", str(base), "--out", "run"]) == 0
    assert fake.compared[-1] == ("ray==1.3", "ray==1.1")
    told = capsys.readouterr()
    text = " ".join(told.out.split())
    assert "the step is between ray==1.1 and ray==1.3" in text
    assert "between them cannot be measured: ray==1.2" in text
    assert "ray==1.2: broken: python: No solution found" in told.err


def test_ends_that_do_not_differ_end_the_search(
    base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for loss, word in ((0.0, "same"), (-0.1, "improved")):
        fake = use(monkeypatch, Fake(rates("ray==1.2", loss)))
        assert run(["bisect", *ENDS, "--python", str(base), "--out", word]) == 1
        assert fake.compared == [("ray==1.3", "ray==1.0")]
        told = capsys.readouterr()
        assert f"not decided: the ends do not differ for the worse: {word}" in " ".join(
            told.out.split()
        )
        assert f"--resume {word} instead of --out" in told.err
        lines = [" ".join(line.split()) for line in told.out.splitlines()]
        assert {"ray==1.0 good end", "ray==1.1 not tested", "ray==1.3 bad end"} <= set(lines)


@pytest.mark.parametrize(
    "stops", [2, *(pytest.param(stops, marks=pytest.mark.long) for stops in (4, 7))]
)
def test_what_ctrl_c_ends_goes_on_and_measures_nothing_again(
    base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stops: int
) -> None:
    line = ["bisect", *ENDS, "--python", str(base)]
    whole = use(monkeypatch, Fake(rates("ray==1.2")))
    assert run([*line, "--out", "whole"]) == 0
    assert len(whole.measured) > stops
    first = use(monkeypatch, Fake(rates("ray==1.2"), stops))
    assert run([*line, "--out", "run"]) == 130
    told = capsys.readouterr()
    assert "interrupted; resume: the same command line" in told.err
    asked = len(calls(base))
    rest = use(monkeypatch, Fake(rates("ray==1.2")))
    assert run([*line, "--resume", "run"]) == 0
    assert first.measured + rest.measured == whole.measured
    assert not [one for one in calls(base)[asked:] if " index " in one]  # as the record has them
    again = use(monkeypatch, Fake(rates("ray==1.2")))
    assert run([*line, "--resume", "run"]) == 0 and again.measured == []


def test_more_rounds_decide_what_was_undecided(
    base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["bisect", *ENDS, "--python", str(base)]
    use(monkeypatch, Fake(rates("ray==1.1", 0.02)))
    assert run([*line, "--rounds", "3", "--threshold", "0.1%", "--out", "run"]) == 1
    assert "more rounds may tell" in " ".join(capsys.readouterr().out.split())
    more = use(monkeypatch, Fake(rates("ray==1.1", 0.02)))
    line += ["--threshold", "0.1%", "--resume", "run", "--rounds", "+20"]
    assert run(line) == 0, capsys.readouterr()
    assert min(round_ for _, _, round_ in more.measured[:1]) == 4
    assert "the step is at ray==1.1" in " ".join(capsys.readouterr().out.split())


def test_a_search_is_gone_on_with_by_its_own_command_line(
    base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["bisect", *ENDS, "--python", str(base)]
    use(monkeypatch, Fake(rates("ray==1.1"), 2))
    assert run([*line, "--out", "run"]) == 130
    for words, why in (
        (["bisect", "--resume", "run"], "--good, --bad: both are needed"),
        ([*line, "--resume", "run", "--out", "x"], "--out: not allowed with --resume; the search"),
        ([*line, "--resume", "run", "--with", "numpy"], "this is not the run in run: extra is"),
        ([*line, "--resume", "run/ray-1.3-against-ray-1.0"], "holds a run of versus"),
        (["bisect", *ENDS[:3], "ray==1.2", "--resume", "run"], "--resume: this is not the run in"),
    ):
        capsys.readouterr()
        assert run(words) == 2, words
        assert why in capsys.readouterr().err
    capsys.readouterr()
    assert run([*line, "--resume", "run", "--clients", "raw:7"]) == 2
    assert "rows is" in capsys.readouterr().err


def test_the_budget_ends_it_and_it_goes_on(
    base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["bisect", *ENDS, "--python", str(base)]
    fake = use(monkeypatch, Fake(rates("ray==1.1")))
    assert run([*line, "--budget", "1s", "--out", "run"]) == 1
    assert [round_ for *_, round_ in fake.measured] == [1]
    assert run([*line, "--resume", "run"]) == 0


def test_the_plan_says_how_many_comparisons(
    base: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["bisect", *ENDS, "--python", str(base), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "good: ray==1.0" and lines[3] == "bad: ray==1.3"
    assert lines[-1].startswith("4 comparisons: the ends, about 2 between them, and the step")
    assert not (tmp_path / "cache").exists() and not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "--good, --bad: both are needed"),
        (["--good", "ray==1.0"], "--good, --bad: both are needed"),
        ([*ENDS, "--rounds", "2"], "--rounds: 2 is not allowed; a verdict takes 3"),
        ([*ENDS, "--env", "x"], "--env: 'x' is not allowed"),
        ([*ENDS, "--of", "nothing"], "--of: unknown variant 'nothing'"),
        ([*ENDS, "--of", "nothing:app,x"], "--of: 'nothing:app,x' is not allowed"),
        ([*ENDS, "--option", "x=1"], "--option: "),
        ([*ENDS, "--format", "classic"], "--format: 'classic' is not allowed"),
        ([*ENDS, "--budget", "x"], "--budget: "),
        (["--good", "a", "--bad", "b"], "--of: 'default': commits are of an app: path/file.py:app"),
        (["--good", "a", "--bad", "b", "--cutoff", "2025-01-01"], "--cutoff: is for versions of"),
    ],
)
def test_refusals(
    base: Path, capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    assert run(["bisect", *words, *(["--python", str(base)] if ENDS[0] in words else [])]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"serve-bench: {why}")


@pytest.mark.git
@pytest.mark.ray
def test_commits_whose_app_cannot_be_imported_are_skipped(
    base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code = "{}from ray import serve\n\n@serve.deployment\nclass A:\n    pass\n\napp = A.bind()\n"
    broken = "import nothing_of_this_name\n"
    texts = [f"# {at}\n" + code.format(broken if at == 3 else "") for at in range(1, 6)]
    file = repository(tmp_path / "repo", texts=texts)
    monkeypatch.chdir(file.parent)
    names = [one.name for one in environments.Commits.of(("HEAD~4", "HEAD"), file).points]
    fake = use(monkeypatch, Fake(lambda name: 600.0 * (0.9 if names.index(name) >= 3 else 1)))
    line = ["bisect", "--good", "HEAD~4", "--bad", "HEAD", "--of", "app.py:app"]
    assert run([*line, "--out", str(tmp_path / "run")]) == 0
    told = capsys.readouterr()
    assert f"between {names[1]} and {names[3]}" in " ".join(told.out.split())
    assert "Change 4" in told.out and "nothing_of_this_name" in told.err
    assert fake.compared[-1] == (names[3], names[1])
    assert not list((tmp_path / "cache").rglob("app.py"))
