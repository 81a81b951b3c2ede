"""The example of a user's project: its workflow is valid (tests/integration runs its commands)."""

import importlib
import tomllib
from typing import Any, Final

from tests.places import TOP

EXAMPLE: Final = TOP / "examples" / "ci"
WORKFLOW: Final = EXAMPLE / ".github" / "workflows" / "benchmark.yml"


def workflow() -> dict[Any, Any]:
    read: Any = importlib.import_module("yaml")  # without types; it comes with Ray
    content: dict[Any, Any] = read.safe_load(WORKFLOW.read_text())
    return content


def commands(job: str) -> list[str]:
    """Read what a job says to a shell, in order."""
    return [step["run"] for step in workflow()["jobs"][job]["steps"] if "run" in step]


def test_the_workflow_is_one() -> None:
    content = workflow()
    assert set(content[True]) == {"pull_request", "push"}  # YAML 1.1 reads `on` as true
    for job in content["jobs"].values():
        assert job["runs-on"] and job["timeout-minutes"]
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
    steps = content["jobs"]["versus"]["steps"]  # base and pull request lie side by side
    places = [step["with"]["path"] for step in steps if "checkout" in step.get("uses", "")]
    assert places == ["base", "pr"]
    # The read-me and the page show its commands.
    for page in (EXAMPLE / "README.md", TOP / "docs" / "ci.md"):
        text = " ".join(page.read_text().replace("\\\n", " ").split())
        for command in ("--benchmark-save=main", "--benchmark-compare-fail=median:100%"):
            assert command in text, f"{page.name} lacks {command}"


def test_what_is_required_brings_the_plugin_and_pytest_benchmark() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    assert "serve-bench[ci]" in (EXAMPLE / "requirements.txt").read_text().split()
    needed = [name.split(">")[0] for name in project["optional-dependencies"]["ci"]]
    assert needed == ["pytest", "pytest-benchmark"]
    assert project["entry-points"]["pytest11"] == {"serve_bench": "serve_bench.pytest_plugin"}
