"""The command line of scale: what it refuses before anything starts, and its plan."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from serve_bench.benchmarks.scale import needs as scale_needs
from serve_bench.benchmarks.scale.needs import BASE_BYTES, REPLICA_BYTES, check_cluster
from serve_bench.benchmarks.scale.request import ScaleSuite
from serve_bench.cli.program import run
from serve_bench.core.errors import RunFailed
from serve_bench.core.result import VariantUsed
from tests import places

STORED = places.FORMATS / "1-scale-single.jsonl"

Refuses = Callable[[str, str], None]

BAD = [
    (
        "ensemble --fanout 0",
        "--fanout: '0' is not allowed; it takes a whole number from 1 to 1,000",
    ),
    ("chain --length 0", "--length: '0' is not allowed; it takes a whole number from 1 to 1,000"),
    ("chain --fanout 3", "No such option"),
    ("single --replicas 0", "--replicas: '0' is not allowed; it takes a whole number from 1"),
    ("single --replicas 1,2", "--replicas: takes one number; several are for scale curve"),
    ("curve --replicas 1,x", "--replicas: 'x' is not allowed"),
    ("curve --replicas 2,2", "--replicas: 2 stands there twice"),
    ("curve --replicas 1,", "--replicas: '' is not allowed"),
    ("multi --deployments 0", "--deployments: '0' is not allowed"),
    ("multi --hops -1", "--hops: '-1' is not allowed; it takes a whole number from 0 to 100"),
    ("single --duration 0", "--duration: '0' is not allowed; it takes a time from 1 s to"),
    ("single --duration forever", "--duration: 'forever' is not allowed"),
    ("single --warmup -1s", "--warmup: '-1s' is not allowed"),
    ("single --timeout 0ms", "--timeout: '0ms' is not allowed"),
    ("single --connections 0", "--connections: '0' is not allowed"),
    ("single --client ab", "--client: 'ab' is not allowed; it takes raw or wrk"),
    ("single --client wrk --duration 1.5s", "--duration: 1.5s: wrk takes whole seconds"),
    ("single --batch-wait-timeout-s x", "--batch-wait-timeout-s: 'x' is not allowed"),
    ("single --nodes 0", "--nodes: '0' is not allowed; it takes a whole number from 1 to 64"),
    ("single --launches 0", "--launches: '0' is not allowed"),
    ("single --variant turbo", "--variant: unknown variant 'turbo'; allowed: default, haproxy"),
    ("single --env A", "--env: 'A' is not allowed; it takes NAME=VALUE"),
    ("single --suite micro", "micro.toml: unknown key"),
    ("single --suite scale_multi", "scale_multi.toml: is a suite of serve-bench scale multi"),
    ("single --suite nix", "--suite: no file 'nix'"),
    ("single --format pdf", "--format: 'pdf' is not allowed"),
    ("single --perf-metrics no/such/file", "--perf-metrics: the folder of no/such/file does not"),
    ("single --address here", "--address: 'here' is not allowed; it takes HOST:PORT"),
    ("single --address :6379", "--address: ':6379' is not allowed; it takes HOST:PORT"),
    ("single --address a:0", "--address: 'a:0' is not allowed"),
    ("single --address ray://a:10001", "--address: 'ray://a:10001' is not allowed"),
    ("single --address no.such.invalid:6379", "--address: no Ray cluster at no.such.invalid:6379"),
    ("single --address a:1 --nodes 2", "--nodes: starts raylets here; it does not go with"),
    ("single --address a:1 --variant haproxy", "--variant and --env do not go with --address"),
    ("single --resume nowhere", "nowhere"),
    (
        f"single --resume {STORED} --replicas 2",
        "--resume follows the stored plan; it does not go with",
    ),
    ("micro", "No such command 'micro'"),
]


@pytest.mark.parametrize(("line", "message"), BAD, ids=[line for line, _ in BAD])
def test_bad_input_is_one_line_and_exit_code_2(line: str, message: str, refuses: Refuses) -> None:
    refuses(f"scale {line}", message)


def test_suites_of_scale_are_not_for_other_commands(refuses: Refuses) -> None:
    refuses("micro --suite scale_single", "scale_single.toml: is a suite of serve-bench scale")


def test_an_address_where_nobody_listens_is_refused(refuses: Refuses) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    refuses(
        f"scale single --address 127.0.0.1:{port}",
        f"--address: no Ray cluster at 127.0.0.1:{port}: connection refused",
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("single --replicas 1000", "--replicas: memory: 1,000 replicas in all take about 101.3 GB"),
        ("single --replicas 1000", "free here: 2.0 GB; --replicas 7 fits"),
        ("multi --replicas 100", "--replicas: memory: 1,000 replicas in all"),
        ("multi --replicas 100", "free here: 2.0 GB; not even the smallest fits"),
        ("ensemble --fanout 100", "--fanout: memory: 101 replicas in all take about 11.4 GB"),
        ("ensemble --fanout 100", "--fanout 6 fits"),
        ("chain --length 100", "--length 7 fits"),
        ("curve --replicas 1,100", "--replicas 7 fits"),
    ],
)
def test_too_many_replicas_are_refused_with_the_largest_that_fits(
    line: str, message: str, refuses: Refuses, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = BASE_BYTES + 7 * REPLICA_BYTES
    monkeypatch.setattr(scale_needs, "free_memory_bytes", lambda: free)
    refuses(f"scale {line}", message)


def test_a_cluster_that_is_there_must_have_the_memory() -> None:
    suite = ScaleSuite("single", (VariantUsed("as-it-is"),), replicas=(100,), address="a:1")
    nodes = [{"memory_bytes": 4 * 10**9}, {"memory_bytes": 3 * 10**9}]
    with pytest.raises(RunFailed) as refused:
        check_cluster(suite, nodes)
    assert str(refused.value) == (
        "--replicas: memory: 100 replicas in all take about 10.0 GB, memory that the cluster gives "
        "out (2 nodes): 7.0 GB; --replicas 70 fits"
    )
    check_cluster(replace(suite, replicas=(70,)), nodes)
    check_cluster(suite, [*nodes, {"memory_bytes": None}])  # Ray does not say


def test_without_wrk_the_package_is_named(
    refuses: Refuses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    refuses(
        "scale single --quick --client wrk",
        "--client wrk: wrk is not on PATH: install the package wrk (apt-get install wrk)",
    )


def test_the_plan_is_printed_and_nothing_started(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        run(["scale", "chain", "--length", "3", "--variant", "default,optimized", "--dry-run"]) == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("launch")] == [
        "launch default, round 1",
        "launch optimized, round 1",
    ]
    assert "    4 clients, HTTP, latency (raw)" in lines
    assert lines[-1].startswith("10 windows of 1 s for each row of throughput; about ")
    assert list(tmp_path.iterdir()) == []
