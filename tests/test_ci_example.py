"""The example of a user's project: its workflow is valid, and every command in it is tested."""

import importlib
import tomllib
from pathlib import Path
from typing import Any, Final

TOP: Final = Path(__file__).parent.parent
EXAMPLE: Final = TOP / "examples" / "ci"
WORKFLOW: Final = EXAMPLE / ".github" / "workflows" / "benchmark.yml"


def workflow() -> dict[Any, Any]:
    read: Any = importlib.import_module("yaml")  # without types; it comes with Ray
    told: dict[Any, Any] = read.safe_load(WORKFLOW.read_text())
    return told


def commands(job: str) -> list[str]:
    """What a job says to a shell, in order."""
    return [step["run"] for step in workflow()["jobs"][job]["steps"] if "run" in step]


def test_the_workflow_is_one() -> None:
    told = workflow()
    assert set(told[True]) == {"pull_request", "push"}  # YAML 1.1 reads `on` as true
    for job in told["jobs"].values():
        assert job["runs-on"] and job["timeout-minutes"]
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
    steps = told["jobs"]["versus"]["steps"]  # base and pull request lie side by side
    places = [step["with"]["path"] for step in steps if "checkout" in step.get("uses", "")]
    assert places == ["base", "pr"]


def test_no_command_is_one_that_no_test_runs() -> None:
    told = {name: commands(name) for name in workflow()["jobs"]}
    assert told == {
        "versus": [
            "python -m venv base-env && "
            "base-env/bin/python -m pip install -r base/requirements.txt",
            "python -m venv pr-env && pr-env/bin/python -m pip install -r pr/requirements.txt",
            "pr-env/bin/serve-bench versus --a base/app.py:app --b pr/app.py:app "
            "--a-python base-env/bin/python --b-python pr-env/bin/python "
            "--rounds 6 --threshold 10% --fail-on regressed "
            '--format markdown >> "$GITHUB_STEP_SUMMARY"',
        ],
        "stored": [
            "python -m pip install -r requirements.txt",
            "python -m pytest --benchmark-compare --benchmark-compare-fail=median:100%",
            "python -m pytest --benchmark-save=main",
        ],
    }


def test_what_is_required_brings_the_plugin_and_pytest_benchmark() -> None:
    told = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    assert "serve-bench[ci]" in (EXAMPLE / "requirements.txt").read_text().split()
    assert [name.split(">")[0] for name in told["optional-dependencies"]["ci"]] == [
        "pytest",
        "pytest-benchmark",
    ]
    assert told["entry-points"]["pytest11"] == {"serve_bench": "serve_bench.pytest_plugin"}


def test_the_read_me_and_the_page_show_the_commands_of_the_workflow() -> None:
    for page in (EXAMPLE / "README.md", TOP / "docs" / "ci.md"):
        text = " ".join(page.read_text().replace("\\\n", " ").split())
        for command in ("--benchmark-save=main", "--benchmark-compare-fail=median:100%"):
            assert command in text, f"{page.name} lacks {command}"
