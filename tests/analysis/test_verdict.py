"""What limited a trial, where a core, the host or the client was full: situations made by hand."""

from dataclasses import replace
from typing import Final

import pytest
from msgspec import structs

from serve_bench.analysis.verdict import limited_by
from serve_bench.analysis.verdict.usage import read_usage
from serve_bench.core.result import Trial
from tests.verdict_trials import IDLE, bound, expect, measured, process, serving, usage


def of_readme(connections: int, rate: float, host: float, p50_ms: float, **cpu: float) -> Trial:
    """Make a column of the tables of README, which have no waiting for a CPU."""
    uses = [process(at, role, share) for at, (role, share) in enumerate(cpu.items(), 1)]
    return measured(connections, rate, usage(*uses, host=host), latency_ms=p50_ms)


DEFAULT_1 = of_readme(1, 187.7, 136, 5.07, load_worker=11, proxy=69, replica=48, controller=3)
DEFAULT_8 = of_readme(8, 282.9, 168, 27.6, load_worker=11, proxy=86, replica=60, controller=3)
DEFAULT_100 = of_readme(100, 484.8, 170, 199, load_worker=2, proxy=96, replica=59, controller=2)

WORKED = "a load worker ran or waited for a CPU {} % of the time (limit 85 %)"
LATE = "responses waited in the client for 25 % of their latency"

WORKER = process(3, "load_worker", 52, wait=15)
SECOND = process(3, "replica", 95, wait=1)
GPU = {"gpus": [{"device": 0, "use_percent": 97.0}]}

#: As planted on 2 cores: one of three replicas burns, and has to wait for a core as all others do.
THREE = (
    process(1, "proxy", 47, wait=92),
    process(2, "replica", 20, wait=35),
    process(3, "replica", 19, wait=38),
)

#: A trial, its cause, how sure it is, its figures, and what comes next; "" is not looked at.
CASES: Final[dict[str, tuple[Trial, str, str, str, str]]] = {
    "a client, default": (DEFAULT_1, "offered load", "high", "offered load, 1 connection", ""),
    "eight clients nearly fill the proxy": (DEFAULT_8, "proxy CPU", "low", "", ""),
    "100 connections fill the proxy": (
        *(DEFAULT_100, "proxy CPU", "high", "proxy CPU 96 % of a core", "host 170 of 200 %"),
    ),
    "a replica burns": (
        measured(20, 50, serving((25, 2), (98, 1.5, 97), host=130)),
        *("replica CPU", "high", "replica CPU 98 % of a core", "host 130 of 200 %"),
    ),
    "a child process of a replica burns": (
        measured(8, 40, serving((19, 2), (16, 1), process(3, "child_of_replica", 98), host=144)),
        *("replica CPU", "medium", "a child process of a replica uses 98 % of a core", ""),
    ),
    "a child process of a replica rests": (
        measured(8, 40, serving((19, 2), (98, 1), process(3, "child_of_replica", 40), host=160)),
        *("replica CPU", "", "replica CPU 98 % of a core", "host 160 of 200 %"),
    ),
    "one replica of two": (
        measured(20, 50, serving((20, 1), (97, 1), process(3, "replica", 12, wait=1), host=140)),
        *("replica loop", "", "replica loop 97 % of a core, the other 12 %", ""),
    ),
    "both replicas": (
        measured(20, 100, serving((20, 1), (97, 1), SECOND, host=220, cores=4)),
        *("replica CPU", "", "replica CPU 97 % of a core, busiest of 2", ""),
    ),
    "one replica of three is never idle": (
        measured(12, 76, usage(*THREE, process(4, "replica", 76, wait=33), host=173)),
        *("replica loop", "low", "replica loop 76 % of a core, the others 20 %", ""),
    ),
    "one replica of three is never idle on a full host": (
        measured(12, 76, usage(*THREE, process(4, "replica", 70, wait=50), host=199)),
        *("replica loop", "low", "", "host 199 of 200 %"),
    ),
    "one replica of three is idle at times": (
        measured(2, 76, usage(*THREE, process(4, "replica", 60, wait=10), host=150)),
        *("offered load", "", "", ""),
    ),
    "two Python threads that take turns are one core": (
        measured(50, 300, serving((20, 1), (99, 1, 55), host=130)),
        *("replica CPU", "", "", ""),
    ),
    "native threads of a replica are not one core": (
        measured(1, 30, serving((10, 1), (130, 1, 35), host=150, cores=4)),
        *("offered load", "", "", ""),
    ),
    "a GPU that is always in use comes before a replica that spins": (
        measured(50, 300, serving((20, 1), (99, 1), host=150, cores=4) | GPU),
        *("GPU", "medium", "GPU 0 in use 97 % of the time", "replica CPU 99 %"),
    ),
    "hogs take the cores": (
        measured(50, 200, serving((45, 50), (30, 35), host=200)),
        *("host CPU", "high", "host CPU 200 of 200 %, 125 % by others", ""),
    ),
    "our own processes share all cores": (
        measured(100, 400, serving((75, 25), (62, 20), WORKER, host=194)),
        *("proxy CPU", "medium", "proxy CPU 75 % of a core, on a full host (194 of 200 %)", ""),
    ),
    "a proxy that never waits on a full host": (
        measured(100, 400, serving((97, 2), (60, 3), host=196)),
        *("proxy CPU", "high", "", ""),
    ),
    # As planted: all threads of a proxy at its core waited for 1.6 cores together.
    "threads that wait together": (
        measured(100, 428, serving((97, 160), (71, 150), host=199)),
        *("proxy CPU", "medium", "", "host 199 of 200 %"),
    ),
    "a process near its core while a little of the host is left": (
        measured(100, 375, serving((88, 140), (67, 150), host=182)),
        *("proxy CPU", "low", "", ""),
    ),
    "a process near its core while nothing of the host is left": (
        measured(100, 375, serving((88, 140), (67, 150), host=196)),
        *("proxy CPU", "low", "proxy CPU 88 % of a core", "host 196 of 200 %"),
    ),
    "a full host that delays nobody": (
        measured(1, 200, serving((30, 1), (20, 0.5), host=200)),
        *("offered load", "", "", ""),
    ),
    "the hypervisor takes cores": (
        measured(100, 300, serving((50, 30), (40, 30), host=110, steal=85)),
        *("host CPU", "", "host CPU 110 of 200 %, 85 % taken by the hypervisor", ""),
    ),
    "a client at its core": (
        measured(
            *(100, 4000),
            serving((30, 1), (40, 1), process(3, "load_worker", 97, wait=2), host=170),
            client=bound(0.97, 0.02, WORKED.format(97)),
        ),
        *("client", "high", "client 97 % not idle", ""),
    ),
    "a client that waits for a full host": (
        measured(
            *(100, 400),
            serving((45, 40), (30, 30), host=200),
            client=bound(0.92, 0.55, WORKED.format(92)),
        ),
        *("host CPU", "", "", "proxy CPU 45 %"),
    ),
    # As read of answers of 5 MB beside pytest, mypy and a program at half a core.
    "all of the way waits for a full host": (
        measured(
            *(8, 68),
            serving((56, 62), (39, 60), process(3, "load_worker", 12, wait=85), host=200),
            client=bound(0.99, 0.87, WORKED.format(99)),
        ),
        *("host CPU", "high", "host CPU 200 of 200 %, 93 % by others", "proxy CPU 56 %"),
    ),
    "a client that is late": (
        measured(100, 4000, IDLE, client=bound(0.30, 0.05, LATE)),
        *("client", "medium", f"client: {LATE}", ""),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_limited_a_trial(name: str) -> None:
    trial, *expected = CASES[name]
    verdict = limited_by(trial)
    seen = verdict.cause, verdict.confidence, verdict.figures, verdict.runner_up or ""
    for wanted, had in zip(expected, seen, strict=True):
        assert wanted in ("", had)


def test_haproxy_counts_by_its_busiest_thread() -> None:
    uses = process(1, "haproxy", 150, wait=3, thread=40), process(2, "replica", 50, wait=1)
    seen = usage(*uses, host=260, cores=4)
    assert limited_by(measured(100, 9000, seen)).cause != "haproxy CPU"
    seen["processes"][0]["busiest_thread_percent"] = 99.0
    expect(measured(100, 9000, seen), "haproxy CPU", words="CPU 99 % of a core in one thread (")


def test_threads_hold_up_a_process_no_longer_than_it_is_not_running() -> None:
    trial, *_ = CASES["threads that wait together"]
    held_up = {use.role: (use.held_up or 0.0, use.level) for use in read_usage(trial.usage)[0]}
    starved = {role: wait / (level + wait) for role, (wait, level) in held_up.items()}
    assert starved == {"proxy": pytest.approx(0.03), "replica": pytest.approx(0.29)}
    # Of sync methods threads come and go: the CPU is that of the process, and so are its waits.
    threads = [
        process(1, "replica", 68, wait=19, thread=2, thread_wait=5),
        process(2, "replica", 68, wait=19, thread=50, thread_wait=5),
        process(3, "replica", 20, wait=70, thread=2, thread_wait=5),  # beside other work, in turn
    ]
    trial = measured(100, 400, usage(*threads, host=180))
    (whole, beside, waits), _ = read_usage(trial.usage)
    assert whole.not_idle == pytest.approx(0.87)
    assert beside.not_idle == beside.awake == pytest.approx(0.68)
    assert waits.not_idle == waits.awake == pytest.approx(0.2)


def test_a_quota_that_is_used_up_limits_client_and_server_alike() -> None:
    """As seen with half a core for an own app, whose requests were found in a call of another."""
    trial = measured(8, 21.8, usage(process(1, "proxy", 12), process(2, "replica", 20), host=60))

    def of_quota(percent: float) -> Trial:
        host = structs.replace(trial.usage.host, throttled_percent=percent)
        return replace(trial, usage=structs.replace(trial.usage, host=host))

    expect(of_quota(92), "host CPU", "high", "CPU quota, used up in 92 % of its periods")
    expect(of_quota(55), "host CPU", "medium")
    assert limited_by(of_quota(20)) == limited_by(trial)
