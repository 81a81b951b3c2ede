"""`serve-bench bisect` on a real Ray Serve: commits of an app, one of which adds a busy-wait."""

from __future__ import annotations

from pathlib import Path

import pytest

from serve_bench.analysis.comparing import of_versus
from serve_bench.store import read
from tests.integration.conftest import run_to_end, wait_until_clean
from tests.kinds.bisect.test_environments import git, repository

pytestmark = [pytest.mark.ray, pytest.mark.git, pytest.mark.long, pytest.mark.timeout(600)]

APP = """import time
from ray import serve
{}

@serve.deployment
class App:
    async def __call__(self, request):
        end = time.perf_counter() + {}
        while time.perf_counter() < end:
            pass
        return "x"

app = App.bind()
"""


def test_the_planted_commit_is_named(tmp_path: Path) -> None:
    """Three commits: the second cannot be imported, the third has the busy-wait: six launches. The
    search over more of them is tested with planted rates."""
    texts = [
        APP.format("", 0),
        APP.format("import nothing_of_this_name", 0),
        APP.format("", 0.02),
    ]
    file = repository(tmp_path / "repo", texts=texts)
    ends = ["bisect", "--good", "HEAD~2", "--bad", "HEAD", "--of", f"{file}:app"]
    done = run_to_end(
        [*ends, "--clients", "raw:4", "--quick", "--rounds", "3", "--out", "run"], tmp_path, 590
    )
    assert done.returncode == 0, done.stderr
    names = git(file.parent, "log", "--reverse", "--format=%H").splitlines()
    good, broken, bad = (one[:12] for one in names)
    text = " ".join(done.stdout.split())
    assert f"the step is between {good} and {bad}" in text
    assert f"cannot be measured: {broken}" in text and "nothing_of_this_name" in done.stderr
    result = read(tmp_path / "run")
    (step,) = [one for one in result.versions if (one.version, one.base) == (bad, good)]
    assert step.word == "bad" and step.high is not None
    stored = read(tmp_path / "run" / step.folder)
    # Named is the surest figure, by chance the rate or the CPU of a request; the rate fell anyway.
    rate = of_versus(stored).rows[0].line("throughput").judged.interval
    assert rate is not None and rate.high < 0.7
    assert stored.run.command == "versus" and all(one.clean for one in stored.teardowns)
    assert len(git(file.parent, "worktree", "list").splitlines()) == 1
    assert wait_until_clean(1) == []
