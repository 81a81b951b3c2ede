"""Limits planted on a real Serve: the verdict names each. One cluster for all; parameters `tune`.

The confusion matrix over two variants and other parameters is `scripts/bench verdicts`
(docs/verdicts.md). Where more than one answer is right on a host of few cores, CROWDED says so.
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.planted_cases import TUNE, WAITS, Case, Field, Wait, client_trial, verdict_on
from serve_bench.analysis.verdict.evidence import evidence_of
from serve_bench.analysis.verdict.limits import OTHERS
from serve_bench.cli.sitting import run_mark
from serve_bench.core.load_spec import Timing
from serve_bench.core.result import Trial
from serve_bench.core.variants import BUILT_IN_VARIANTS
from tests.integration.conftest import launched, measure, own_place, reported, run_checked
from tests.load.test_client_bound import FAST_SERVER, pinned, running
from tests.sheet_parts import ladders_of

pytestmark = [pytest.mark.alone, pytest.mark.ray, pytest.mark.ci]

VARIANT = "default"
TIMING = Timing(warmup_min_s=0.4, warmup_max_s=0.8, windows=3, window_s=0.5)

CROWDED = {"proxy": "proxy CPU", "one of 3 hot": "replica loop"}
"""With proxy, replicas and client on fewer than 4 cores these two come near the whole host: then
"host CPU" is right as well, if what was planted comes next."""

ATTEMPTS = 3
"""A planting is spoilt when strangers or the hypervisor take so much of the host that a verdict
names it."""

SERVED = [case for case in TUNE if VARIANT in case.on and "loop blocked" not in case.name]

#: Left to `make test-all`: "all burn" may have the cause of "replica burns" or of "hogs", and what
#: is said of a full queue is in tests/analysis/test_verdict_waits.py.
PROVEN = ("all burn", "queue full")

#: Kinds of waits in apps as a user has them; all of them: `scripts/bench verdicts --set waits`.
WAITING = ("blocked loop", "lock", "one thread", "own batch", "rare helper", "queue full")
OWN = [case for case in WAITS if case.name in WAITING]


def parameter(case: Case) -> Any:
    marks = [pytest.mark.long] if case.name in PROVEN else []
    return pytest.param(case, marks=marks, id=case.name.replace(" ", "-"))


@pytest.fixture(scope="module", autouse=True)
def _leaves_nothing() -> Iterator[None]:
    """In place of the fixture for each test: the cluster is the module's, and what remains too."""
    with own_place():
        yield


@pytest.fixture(scope="module")
def field(_leaves_nothing: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    """Launch a cluster of the variant, with the app on its path."""
    folder = tmp_path_factory.mktemp("planted")
    with launched(BUILT_IN_VARIANTS[VARIANT], folder / "ray.log") as serving:
        made = Field(serving, serving.spec.run_id, VARIANT, folder)
        made.make_ready()
        yield made


def undisturbed(field: Field, case: Case) -> list[Trial]:
    """Measure a case, planted anew while strangers take cores from it."""
    for _ in range(ATTEMPTS):
        trials = field.trials(case, TIMING)
        host = evidence_of(trials[-1]).host
        if case.hogs or host is None or host.others + host.steal < OTHERS * host.cores:
            break
    return trials


@pytest.mark.parametrize("case", [*map(parameter, SERVED)])
def test_a_planted_limit_is_named(field: Field, case: Case) -> None:
    trials = undisturbed(field, case)
    assert [trial.counts.failed for trial in trials] == [{}] * len(trials)
    verdict = verdict_on(trials)
    few = (os.cpu_count() or 1) < 4 and case.name in CROWDED
    if few and verdict.cause == "host CPU":
        assert verdict.runner_up_cause == CROWDED[case.name], verdict.text
    else:
        assert verdict.cause in case.causes, verdict.text
    if case.front:
        assert verdict.deployment == "Planted"


@pytest.mark.parametrize("case", [*map(parameter, OWN)])
def test_a_wait_of_an_own_app_is_named_with_its_line(field: Field, case: Wait) -> None:
    trials = undisturbed(field, case)
    verdict = verdict_on(trials, case)
    assert verdict.cause in case.causes, verdict.text
    assert all(word in verdict.text for word in case.words), verdict.text
    if case.name == "rare helper":  # of which slots are few, and hardly any request goes there
        assert verdict.deployment == "Front"


@pytest.mark.parametrize(
    ("how", "fallen"), [("crowd", {8: 3, 24: 3}), ("queue", {})], ids=["collapses", "flat"]
)
def test_a_planted_collapse(field: Field, how: str, fallen: dict[int, int], tmp_path: Path) -> None:
    """Eight at once take 80 ms, 100 requests/s; 24 take 720 ms and 33/s, or 240 ms in a queue."""
    url = field.plant(Case(how, (), how, 80, 0))
    flags = ["--clients", "4,8,24", "--requests-per-client", "8", "--format", "json"]
    result = measure(["press", f"--url=planted={url}", *flags], tmp_path)
    runs = Counter(trial.row.connections for trial in result.trials)
    assert runs == {4: 1, 8: 1, 24: 1} | fallen
    for trial in result.trials:
        assert trial.counts.completed == trial.row.requests and trial.counts.failed == {}
    (ladder,) = ladders_of(result)
    assert ladder.best is not None and ladder.best.clients >= 8
    assert ladder.collapses == [24] * bool(fallen)


def test_a_client_that_takes_answers_apart_is_the_limit(tmp_path: Path) -> None:
    case = next(case for case in TUNE if case.name == "client")
    allowed = sorted(os.sched_getaffinity(0))
    with running(FAST_SERVER, allowed[0]) as server, run_mark() as run_id:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}/"
        with pinned(allowed[-1]):
            verdict = verdict_on([client_trial(case, url, run_id, tmp_path)])
    assert verdict.cause == "client", verdict.text


GIVES_UP = """
import asyncio, time
from ray import serve

def note(how):
    with open(FILE, "a") as file:
        file.write(how)

@serve.deployment(max_ongoing_requests=100)
class Child:
    def __call__(self, how):
        time.sleep(0.6)
        note(how)

@serve.deployment(max_ongoing_requests=100)
class Front:
    def __init__(self, child):
        self.child = child

    async def __call__(self, request):
        how, until = request.query_params.get("how", "answered"), time.monotonic() + 0.6
        if how == "thread":
            return await self.child.remote("t")
        while how != "answered" and time.monotonic() < until:
            try:
                await asyncio.sleep(until - time.monotonic())
            except asyncio.CancelledError:
                if how == "ends":
                    raise
        note(how[0])

app = Front.bind(Child.bind())
"""


@pytest.mark.parametrize("how", ["ignores", "thread"])
def test_what_is_finished_for_nobody_is_counted(how: str, tmp_path: Path) -> None:
    """The client gives up two of three requests after 0.3 s. The app counts what it finishes."""
    counts = tmp_path / "finished"
    (tmp_path / "left.py").write_text(GIVES_UP.replace("FILE", repr(str(counts))))
    (tmp_path / "paths").write_text(f"/?how=answered\n/?how={how}\n/?how=ends\n")
    line = "run left.py:app --timeout 300ms --paths paths --clients raw:10 --quick --out r"
    shown = run_checked(line, tmp_path).stdout
    (row,) = reported(tmp_path, "r")["rows"]
    figure, finished = row["figures"]["finished_for_nobody"], Counter(counts.read_text())
    deployment, answered = ("Front", finished["a"]) if how == "ignores" else ("Child", 0)
    share = finished[how[0]] / (finished[how[0]] + answered)
    assert 0 < figure["value"] < finished[how[0]] and finished["e"] == 0
    assert figure["value"] / figure["of"] == pytest.approx(share, abs=0.15)
    assert f"requests that {deployment} finished" in shown.replace("\n  ", " ")
