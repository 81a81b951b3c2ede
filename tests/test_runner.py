"""The runner where a cluster does not start: what is tried again, and what is not."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from serve_bench import runner
from serve_bench.agenda import Agenda
from serve_bench.launch_spec import LaunchSpec
from serve_bench.observer import Step
from serve_bench.result import Failure, Trial
from serve_bench.runner import Runner
from serve_bench.scenario import plan
from serve_bench.server import NOT_TRIED, LaunchFailed
from serve_bench.store import RunFolder, read
from serve_bench.strays import Reaped
from serve_bench.suite import Overrides, read_suite
from tests import records


class Silent:
    """An observer that shows nothing."""

    def step(self, step: Step) -> None: ...

    def trial(self, trial: Trial, number: int, of: int) -> None: ...

    def failure(self, failure: Failure) -> None: ...


@pytest.mark.parametrize(("imported", "tried"), [(False, 1), (True, 4)])
def test_an_interpreter_that_cannot_import_ray_is_tried_once(
    imported: bool, tried: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[LaunchSpec] = []

    class Failing:
        """A launch that does not come up."""

        def __init__(self, spec: LaunchSpec) -> None:
            self.spec, self.imported = spec, imported

        def start(self, report: object) -> None:
            started.append(self.spec)
            raise LaunchFailed("ModuleNotFoundError: No module named 'ray'")

        def close(self) -> Reaped:
            return Reaped(0, 0.0)

    monkeypatch.setattr(runner, "Serving", Failing)
    suite = read_suite({}, "x", Overrides(variants=("default", "optimized"), launches=2))
    with RunFolder.create(tmp_path / "r", now=datetime.now(UTC)) as folder:
        folder.append(records.run())
        assert not Runner(Agenda(suite, plan(suite)), folder, "abc123", Silent()).run()
    assert len(started) == tried
    failures = read(tmp_path / "r").failures
    assert len(failures) == 4 and "No module named" in failures[0].message
    later = {one.message for one in failures[1:]}
    assert later == {failures[0].message if imported else NOT_TRIED}
