"""The runner where a cluster does not start: what is tried again, and what is not; and the further
load after a row, which must cost nothing that was measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from serve_bench.core.load_spec import Load
from serve_bench.core.plan import plan
from serve_bench.core.result import Failure, Trial
from serve_bench.core.suite import Overrides, read_suite
from serve_bench.runner import served
from serve_bench.runner.agenda import Agenda
from serve_bench.runner.load_place import Joinable, LoadDriver, LocalLoads
from serve_bench.runner.runner import Runner, RunStep
from serve_bench.runner.served import ServedClusters
from serve_bench.serving.launch_spec import LaunchSpec
from serve_bench.serving.server import NOT_TRIED, Deployed, LaunchFailed
from serve_bench.serving.strays import Reaped
from serve_bench.store import RunFolder, read
from tests import records, rounds


class Silent:
    """An observer that shows nothing."""

    def step(self, step: RunStep) -> None: ...

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

    monkeypatch.setattr(served, "Serving", Failing)
    suite = read_suite({}, "x", Overrides(variants=("default", "optimized"), launches=2))
    with RunFolder.create(tmp_path / "r", now=datetime.now(UTC)) as folder:
        folder.append(records.run())
        every = ServedClusters(Agenda(suite, plan(suite)), "abc123", folder.path)
        assert not Runner(every.plan(), folder, Silent()).run()
    assert len(started) == tried
    failures = read(tmp_path / "r").failures
    assert len(failures) == 4 and "No module named" in failures[0].message
    later = {one.message for one in failures[1:]}
    assert later == {failures[0].message if imported else NOT_TRIED}


class Up:
    """A launch that is up, with nothing in it."""

    url, imported, seconds = "http://127.0.0.1:1", True, {}  # type: ignore[var-annotated]

    def __init__(self, spec: LaunchSpec) -> None: ...

    def start(self, report: object) -> None: ...

    def deploy(self, app: object, cell: object) -> Deployed:
        return Deployed(0.1, False, {"replicas": []})

    def prove(self) -> dict[str, Any]:
        return {}

    def alive(self) -> bool:
        return True

    def broken(self) -> None:
        return None

    def casualties(self) -> list[str]:
        return []

    def close(self) -> Reaped:
        return Reaped(0, 0.0)


class Aside:
    """Looks at nothing beside a load, but is asked to sample."""

    sample, metrics = True, False

    loaded = 0

    def deployed(self, serving: object) -> None: ...

    def loaded_between(self) -> None:
        self.loaded += 1

    @contextmanager
    def around(self, *_: object, **__: object) -> Iterator[None]:
        yield None


class Canned(LocalLoads):
    """A load that is always the same."""

    def drive(self, cluster: Joinable | None = None) -> LoadDriver:
        return lambda load, timing, **_: rounds.round_of(load, 1.0)


@pytest.mark.parametrize("pressed", [True, False])
def test_a_look_after_a_row_is_kept_with_it_and_ctrl_c_in_it_loses_nothing(
    pressed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Load] = []

    def look(serving: object, trial: Trial, load: Load, *_: object) -> dict[str, Any]:
        looked.append(load)
        if pressed:
            raise KeyboardInterrupt
        return {"why_not": "nobody answered"}

    monkeypatch.setattr(served, "Serving", Up)
    monkeypatch.setattr(served, "worth_a_look", lambda trial, front: True)
    monkeypatch.setattr(served, "look_at_waits", look)
    suite = read_suite({}, "x", Overrides(variants=("default",), launches=1))
    with RunFolder.create(tmp_path / "r", now=datetime.now(UTC)) as folder:
        folder.append(records.run())
        one: Any = Aside()
        agenda = Agenda(suite, plan(suite))
        every = ServedClusters(agenda, "abc123", folder.path, inside=one, place=Canned())
        run = Runner(every.plan(), folder, Silent())
        if pressed:
            with pytest.raises(KeyboardInterrupt):
                run.run()
        else:
            assert run.run()
    result = read(tmp_path / "r")
    assert not result.failures and len(result.trials) == len(looked) > 0
    if pressed:
        assert len(looked) == 1 and not result.trials[0].waits
    else:
        assert all(one.waits == {"why_not": "nobody answered"} for one in result.trials)
