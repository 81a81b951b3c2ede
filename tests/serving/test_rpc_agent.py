"""What an agent and an observer of `serve-bench rpc` do, whatever carries the calls."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import Any

import pytest

from serve_bench.serving.apps.rpc.agent import Agent, episode, figures, one_line, stopped
from tests.cases import cases

SPEC: dict[str, Any] = {
    **{"observers": 4, "batch": True, "state_size": [3, 2, 5], "nlayers": 2, "out_features": 6},
    **{"device": "cpu", "threads": 1, "seed": 1, "policy_ms": None},
}


def test_an_agent_with_a_fixed_policy_needs_no_torch_and_tells_each_latency_once() -> None:
    had_torch = "torch" in sys.modules
    agent = Agent({**SPEC, "policy_ms": 2.0})
    assert ("torch" in sys.modules) is had_torch
    first_ns = time.perf_counter_ns() - 7_000_000  # the first request came 7 ms ago
    assert agent.select(range(4), first_ns) == [0] * 4
    assert agent.select(range(4), time.perf_counter_ns()) == [0] * 4
    waited, alone = agent.take_latencies()
    assert waited >= 9_000_000 and alone >= 2_000_000
    assert agent.take_latencies() == []


@cases("batch, right", (True, 4), (False, 1))
def test_an_agent_refuses_a_batch_of_another_length(batch: bool, right: int) -> None:
    agent = Agent({**SPEC, "batch": batch, "policy_ms": 0.0})
    assert agent.batch_size == right
    for wrong in (0, 2, 3, 5):
        with pytest.raises(RuntimeError, match=f"^a batch of {wrong}, it takes {right}$"):
            agent.select([None] * wrong, 0)
    assert agent.take_latencies() == []
    assert len(agent.select([None] * right, 0)) == right


def test_an_observer_asks_so_often_and_makes_its_states_outside_the_latency() -> None:
    asked: list[int] = []

    def state() -> int:
        time.sleep(0.004)
        return len(asked)

    def select_action(at: int) -> int:
        asked.append(at)
        time.sleep(0.001)
        return 0

    timed = episode(select_action, state, 5)
    assert asked == [0, 1, 2, 3, 4] and len(timed["latency_ns"]) == 5
    assert min(timed["latency_ns"]) >= 1_000_000
    span_ns = timed["ended_ns"] - timed["began_ns"]
    assert span_ns >= 25_000_000
    # Each state took 4 ms, and none of it is latency.
    assert sum(timed["latency_ns"]) <= span_ns - 20_000_000


def test_an_episode_lasts_from_the_first_to_the_last_of_its_observers() -> None:
    episodes = [
        {"began_ns": 20, "ended_ns": 90, "latency_ns": [5, 6]},
        {"began_ns": 10, "ended_ns": 80, "latency_ns": [7, 8]},
    ]
    assert figures((3, 4), episodes) == {
        **{"agent_ns": [3, 4], "observer_ns": [[5, 6], [7, 8]], "began_ns": 10, "ended_ns": 90}
    }


def test_a_process_that_a_signal_has_stopped_is_found_by_its_rank() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as sleeper:
        pids = {0: os.getpid(), 3: sleeper.pid}
        assert stopped(pids) is None
        os.kill(sleeper.pid, signal.SIGSTOP)
        os.waitpid(sleeper.pid, os.WUNTRACED)  # until it has
        found = stopped(pids)
        sleeper.kill()
    said = f"observer 3 (pid {sleeper.pid}) is stopped by a signal; others waited for it"
    assert str(found) == said


def test_an_error_is_one_line_and_of_a_traceback_its_last() -> None:
    remote = (
        "On WorkerInfo(id=0, name=agent):\n\x1b[36mRuntimeError: it failed\x1b[39m\n"
        "Traceback (most recent call last):\n  File x, line 3\nValueError: bad state\n"
    )
    assert one_line(RuntimeError(remote)) == "ValueError: bad state"
    assert one_line(ValueError("first\n  second")) == "ValueError: first second"
    assert one_line(ValueError()) == "ValueError"


@pytest.mark.torch
@cases("kind", "tensor", "array")
def test_actions_of_the_network_are_within_range_and_one_for_each_state(kind: str) -> None:
    import torch

    agent = Agent(SPEC)
    seen: Counter[int] = Counter()
    for _ in range(200):
        states = [torch.rand(3, 2, 5) for _ in range(4)]
        given = states if kind == "tensor" else [state.numpy() for state in states]
        for state in given:
            assert tuple(state.shape) == (3, 2, 5)
        actions = agent.select(given, 0)
        assert len(actions) == 4 and all(type(action) is int for action in actions)
        seen.update(actions)
    assert set(seen) == set(range(6))  # drawn: of 800, each of six is among them
    assert len(agent.take_latencies()) == 200
    last = agent._policy._model[-1]  # type: ignore[union-attr]
    with torch.no_grad():  # from the scores of the last layer
        last.weight.zero_()
        last.bias.copy_(torch.tensor([0.0, 0.0, 0.0, 100.0, 0.0, 0.0]))
    assert set(agent.select(given, 0)) == {3}


@pytest.mark.torch
def test_a_state_of_another_shape_is_refused_and_one_that_is_read_only_is_not() -> None:
    import numpy
    import torch

    agent = Agent({**SPEC, "batch": False})
    with pytest.raises(RuntimeError):
        agent.select([torch.rand(3, 2, 4)], 0)
    assert agent.take_latencies() == []
    state = numpy.zeros((3, 2, 5), numpy.float32)
    state.setflags(write=False)  # as those of Ray are
    (action,) = agent.select([state], 0)
    assert 0 <= action < 6 and len(agent.take_latencies()) == 1


@pytest.mark.torch
def test_the_network_is_what_the_arguments_say_and_the_same_for_a_seed() -> None:
    import torch

    def layers(**changed: Any) -> list[Any]:
        model = Agent({**SPEC, **changed})._policy._model  # type: ignore[union-attr]
        return [layer for layer in model if isinstance(layer, torch.nn.Linear)]

    made = layers()
    assert [(layer.in_features, layer.out_features) for layer in made] == [(30, 6), (6, 6), (6, 6)]
    assert len(layers(nlayers=5, out_features=3)) == 6
    again, other = layers(), layers(seed=2)
    assert all(torch.equal(a.weight, b.weight) for a, b in zip(made, again, strict=True))
    assert not torch.equal(made[0].weight, other[0].weight)
