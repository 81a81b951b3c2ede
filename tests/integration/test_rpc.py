"""`serve-bench rpc` with real processes: a known answer on each backend, and what breaks a run.

A policy of a fixed time makes the latencies known. Bounds are those of arithmetic, or wide: what an
observer waits for cannot be shorter than what the agent does meanwhile.
"""

import json
import os
import signal
import statistics
import subprocess
import time
from itertools import chain
from pathlib import Path
from typing import Any

import psutil
import pytest

from serve_bench.core.facts import TrialFlags
from serve_bench.core.figures import counted
from serve_bench.core.histogram import Histogram
from serve_bench.core.result import Result, Trial
from serve_bench.store import read
from tests.cases import cases, sure
from tests.integration.conftest import (
    ended,
    measure,
    run_checked,
    start,
    wait_until_clean,
    warden_of,
)

TORCH = [pytest.mark.torch]
RAY = [pytest.mark.torch, pytest.mark.ray]
LONG = [*RAY, pytest.mark.long]

#: An episode takes 0.5 s with batch and 1.5 s without: time enough to end a process after two.
POLICY_MS, POLICY_NS = 50, 50_000_000
OBSERVERS, STEPS, EPISODES = 3, 10, 6
KNOWN = (
    *("rpc", "--world-size", str(OBSERVERS + 1), "--batch", "True,False", "--master-port", "0"),
    *("--policy-ms", str(POLICY_MS), "--steps", str(STEPS), "--episodes", str(EPISODES)),
)

BREAKS = ("rpc", "--world-size", "3", "--policy-ms", "20", "--steps", "5", "--master-port", "0")


def raw_of(trial: Trial, folder: Path) -> list[dict[str, Any]]:
    """Read the episodes of a trial, each latency in them."""
    lines = (folder / trial.client.raw).read_text(encoding="ascii").splitlines()
    return [json.loads(line) for line in lines]


def check_whole(result: Result, folder: Path) -> None:
    """Check that a policy of a fixed time gives the figures that arithmetic says."""
    batched, alone = result.trials
    assert [trial.cell["batch"] for trial in (batched, alone)] == [True, False]
    # Each alone, one after the other, they wait for three times as long.
    assert check_alone(raw_of(alone, folder)) > 1.5 * check_batched(raw_of(batched, folder))
    for trial in result.trials:
        check_records(trial, raw_of(trial, folder))
        assert trial.usage.processes


def median_wait_ns(episodes: list[dict[str, Any]]) -> float:
    """Of all that observers waited for."""
    waits: list[int] = list(chain(*(chain(*part["observer_latency_ns"]) for part in episodes)))
    return statistics.median(waits)


def check_batched(episodes: list[dict[str, Any]]) -> float:
    """Check for one agent latency a step, within the longest wait; return the median wait, ns."""
    for episode in episodes:
        agent, calls = episode["agent_latency_ns"], episode["observer_latency_ns"]
        assert episode["batch_size"] == OBSERVERS == len(calls)
        assert [len(waits) for waits in calls] == [STEPS] * OBSERVERS and len(agent) == STEPS
        for step in range(STEPS):
            waited = [call[step] for call in calls]
            assert POLICY_NS <= agent[step] <= max(waited)
            assert min(waited) >= POLICY_NS
        span_s = (episode["ended_ns"] - episode["began_ns"]) / 1e9
        assert OBSERVERS * STEPS / span_s <= OBSERVERS * 1e3 / POLICY_MS
    return median_wait_ns(episodes)


def check_alone(episodes: list[dict[str, Any]]) -> float:
    """Check for one agent latency a call, no two at once; return the median wait, ns."""
    in_system = []
    for episode in episodes:
        agent, calls = episode["agent_latency_ns"], episode["observer_latency_ns"]
        assert episode["batch_size"] == 1 and len(calls) == OBSERVERS
        assert [len(call) for call in calls] == [STEPS] * OBSERVERS
        assert len(agent) == OBSERVERS * STEPS
        waits, span_ns = list(chain(*calls)), episode["ended_ns"] - episode["began_ns"]
        assert min(agent) >= POLICY_NS and min(waits) >= POLICY_NS
        assert sum(agent) <= span_ns
        assert len(waits) / (span_ns / 1e9) <= 1e3 / POLICY_MS
        in_system.append(sum(waits) / span_ns)  # mean latency x rate
    assert all(mean <= OBSERVERS for mean in in_system)
    assert statistics.median(in_system) == pytest.approx(OBSERVERS, rel=0.1)
    return median_wait_ns(episodes)


def check_records(trial: Trial, episodes: list[dict[str, Any]]) -> None:
    """Check the trial against the raw file."""
    assert [episode["episode"] for episode in episodes] == list(range(1, EPISODES + 1))
    assert {episode["trial"] for episode in episodes} == {trial.key}
    agent = list(chain(*(episode["agent_latency_ns"] for episode in episodes)))
    calls = [value for episode in episodes for value in chain(*episode["observer_latency_ns"])]
    assert trial.counts.sent == trial.counts.completed == OBSERVERS * STEPS * EPISODES
    assert len(calls) == trial.counts.completed and trial.flags == TrialFlags()
    assert trial.metrics["latency"].histogram == Histogram.of(calls).encode()
    assert trial.metrics["agent_latency"].histogram == Histogram.of(agent).encode()
    rates = [OBSERVERS * STEPS / ((part["ended_ns"] - part["began_ns"]) / 1e9) for part in episodes]
    assert trial.metrics["throughput"].windows == pytest.approx(rates)
    size = sure(trial.client.batch_size)
    means = [
        statistics.fmean(size * 1e9 / value for value in episode["agent_latency_ns"])
        for episode in episodes
    ]
    assert trial.metrics["agent_throughput"].windows == pytest.approx(means)
    assert len({trial.client.agent_pid, *trial.client.observer_pids}) == OBSERVERS + 1
    assert trial.client.policy == f"fixed {POLICY_MS} ms" and sure(trial.client.memory_bytes) > 0


def wait_for_episodes(process: subprocess.Popen[str], folder: Path, world: int, least: int) -> Any:
    """Wait until so many episodes of the n-th world are measured; return who is in it."""
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[0]
        files = sorted((folder / "rpc").glob("*.jsonl"), key=lambda file: file.stat().st_ctime_ns)
        if len(files) >= world and files[world - 1].read_bytes().count(b"\n") >= least:
            return read(folder).deploys[world - 1].proof
        time.sleep(0.02)
    raise AssertionError(f"no {least} episodes of world {world} in 100 s")


@cases(
    "backend",
    pytest.param("torch", marks=TORCH),
    *(pytest.param(backend, marks=LONG) for backend in ("ray", "serve")),
)
def test_who_is_killed_is_named_and_resume_goes_on(backend: str, tmp_path: Path) -> None:
    folder = tmp_path / "r"
    # Whoever waited for the timeout of a call would wait for longer than this test does.
    command = [*KNOWN, "--backend", backend, "--timeout-s", "600", "--out", "r"]
    process = start(*command, cwd=tmp_path)
    members = wait_for_episodes(process, folder, 1, 2)
    observer = members["observers"][1]
    os.kill(observer, signal.SIGKILL)
    # The world without batch is measured all the same, and there the agent is killed.
    members = wait_for_episodes(process, folder, 2, 2)
    os.kill(members["agent"], signal.SIGKILL)
    output = ended(process, 1)
    assert wait_until_clean(10) == []
    assert "incomplete; resume: serve-bench rpc --resume r" in output
    result = read(folder)
    assert len(result.failures) == len(result.trials) == 2, output
    for failure, trial, who in zip(
        result.failures,
        result.trials,
        (f"observer 2 (pid {observer}) ", f"the agent (pid {members['agent']}) "),
        strict=True,
    ):
        assert failure.what == "trial" and failure.key == trial.key
        assert failure.message.startswith(who) and "\n" not in failure.message, output
        whole = raw_of(trial, folder)
        assert 2 <= len(whole) < EPISODES
        assert failure.message.endswith(f", after {counted(len(whole), 'episode')}")
        assert f"{failure.message}\n" in output
        assert trial.flags == TrialFlags(interrupted=True)
        assert len(trial.metrics["throughput"].windows or ()) == len(whole)
        assert trial.counts.completed == len(whole) * OBSERVERS * STEPS
    assert all(teardown.clean for teardown in result.teardowns)
    run_checked(["rpc", "--resume", "r"], tmp_path)
    result = read(folder)
    assert result.complete and len(result.launches) == 2 and result.failures == ()
    assert {trial.variant for trial in result.trials} == {backend}
    check_whole(result, folder)
    if backend == "torch":  # what Ray opens is Ray's
        assert [deploy.proof["open_to_network"] for deploy in result.deploys] == [[]] * 4


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@cases(
    "backend, end, code",
    pytest.param("torch", "cli", -9, marks=LONG, id="torch-sigkill"),
    pytest.param("torch", "both", -9, marks=TORCH, id="torch-sigkill-both"),
    pytest.param("torch", "ctrl-c", 130, marks=TORCH, id="torch-ctrl-c"),
    pytest.param("ray", "cli", -9, marks=LONG, id="ray-sigkill"),
    pytest.param("ray", "both", -9, marks=RAY, id="ray-sigkill-both"),
    pytest.param("serve", "ctrl-c", 130, marks=LONG, id="serve-ctrl-c"),
)
def test_an_end_from_outside(backend: str, end: str, code: int, tmp_path: Path) -> None:
    """In `both` nobody but its own program, which is in an episode, is left to end the launch."""
    folder = tmp_path / "r"
    command = [*BREAKS, "--backend", backend, "--episodes", "1000", "--out", "r"]
    process = start(*command, cwd=tmp_path)
    members = wait_for_episodes(process, folder, 1, 3)
    if end == "both":
        warden_of(process).kill()
    process.send_signal(signal.SIGINT if end == "ctrl-c" else signal.SIGKILL)
    output, _ = process.communicate(timeout=60)
    assert wait_until_clean(10) == []
    assert not any(alive(pid) for pid in (members["agent"], *members["observers"]))
    assert process.returncode == code, output
    result = read(folder)
    if code == -9:  # every latency of whole episodes stands in the file beside
        assert result.trials == ()
        (file,) = (folder / "rpc").iterdir()
        lines = file.read_bytes().split(b"\n")
        assert len(lines) > 3 and all(json.loads(line)["episode"] for line in lines[:-1])
        return
    (trial,), (failure,) = result.trials, result.failures
    whole = raw_of(trial, folder)
    assert trial.flags == TrialFlags(interrupted=True) and len(whole) >= 3
    assert len(trial.metrics["throughput"].windows or ()) == len(whole)
    assert failure.message == f"interrupted after {counted(len(whole), 'episode')}"
    assert "interrupted; resume: serve-bench rpc --resume r\n" in output
    assert (folder / "benchmark_report.json").exists()


@pytest.mark.torch
def test_the_address_may_be_a_name_and_the_published_port_is_kept_to(tmp_path: Path) -> None:
    """Of this machine alone: nothing of a world listens to the network."""
    command = ["rpc", "-world_size=2", "-master_addr=localhost", "-state_size=4-5", "-nlayers=1"]
    more = ["--master-port", "0", "--episodes", "2", "--steps", "50", "-output_file_path=x.json"]
    result = measure([*command, *more], tmp_path)
    (trial,), (deploy,), (launch,) = result.trials, result.deploys, result.launches
    assert trial.client.policy == "network" and trial.counts.completed == 100
    assert deploy.proof["open_to_network"] == [] and launch.proof["master_port"] > 0
    assert launch.proof["versions"]["torch"]
    assert (tmp_path / "x.json").read_text() == (tmp_path / "run/benchmark_report.json").read_text()
