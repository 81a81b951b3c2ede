import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from serve_bench.core.errors import BadInput, RunFailed
from serve_bench.core.result import VariantUsed
from serve_bench.serving import launch_spec
from serve_bench.serving.server import Process, Serving
from tests.cases import cases


def test_a_block_is_below_the_ephemeral_range_free_and_apart_from_others() -> None:
    block = launch_spec.free_block(40)
    assert len(block) == 40 and len({launch_spec.free_block(40)[0] for _ in range(8)}) > 1
    assert block[0] >= 20000 and block[-1] < 32000
    for port in block[:5]:
        with socket.socket() as probe:
            probe.bind(("", port))
    taken = range(24_000, 32_000)  # in use, or soon will be
    for _ in range(20):
        block = launch_spec.free_block(40, [range(0), taken])
        assert block.stop <= taken.start or block.start >= taken.stop
    with pytest.raises(RunFailed, match="no 40 ports in a row"):
        launch_spec.free_block(40, [range(20_000, 32_000)])
    with pytest.raises(BadInput, match=r"--host: 'no\.such\.invalid' cannot be resolved"):
        launch_spec.check_port("no.such.invalid", 0)


@cases(
    "address, loopback",
    *(("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("::ffff:127.0.0.1", True)),
    *(("0.0.0.0", False), ("::", False), ("192.0.2.1", False), ("::ffff:192.0.2.1", False)),
)
def test_loopback_in_every_spelling(address: str, loopback: bool) -> None:
    assert launch_spec.is_loopback(address) is loopback


@cases("address, open_", ("127.0.0.1", False), ("0.0.0.0", True))
def test_what_is_open_to_the_network(address: str, open_: bool) -> None:
    with socket.create_server((address, 0)) as server:
        port = server.getsockname()[1]
        listening = launch_spec.listening_ports({os.getpid(): "proxy"})
        found = launch_spec.open_to_network(listening)
        assert port in {entry["port"] for entry in listening}
        assert ({"port": port, "address": address, "role": "proxy"} in found) is open_


def test_a_port_that_two_processes_hold_is_that_of_either() -> None:
    """As HAProxy hands its ports over: a list of all sockets names one of the two."""
    with socket.create_server(("0.0.0.0", 0)) as server:
        fds = [server.fileno()]
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=fds) as heir:
            for pid in (os.getpid(), heir.pid):
                found = launch_spec.open_to_network(launch_spec.listening_ports({pid: "haproxy"}))
                assert server.getsockname()[1] in {entry["port"] for entry in found}
            heir.communicate()


def test_a_proof_is_of_who_has_taken_the_ports_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of processes from before a reload has no port of HAProxy any more."""
    with socket.create_server(("0.0.0.0", 0)) as held:
        serving = Serving(launch_spec.LaunchSpec(VariantUsed("default"), "abcdef", "1", Path("x")))
        serving.port = held.getsockname()[1]
        looks = iter([[Process(1, "haproxy", "old")], [Process(os.getpid(), "haproxy", "new")]])
        monkeypatch.setattr(serving, "processes", lambda: next(looks))
        facts: dict[str, Any] = {"flags": {}, "environment": {}, "packages": []}
        monkeypatch.setattr(serving, "_ask", lambda *asked: facts)
        monkeypatch.setattr("serve_bench.serving.server.contradictions", lambda *proof: [])
        proof = serving.prove()
    assert [process["pid"] for process in proof["processes"]] == [os.getpid()]
    assert "haproxy" in {entry["role"] for entry in proof["open_to_network"]}
