"""Loads whose bottleneck is the client on any machine.

The fast server sends one ready answer of 2,000 chunks, which costs it little, while the client has
to take each chunk apart.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from serve_bench.core.load_result import ClientVerdict
from serve_bench.core.load_spec import Client, Load, Timing
from serve_bench.core.request_spec import Request
from serve_bench.load.driver import drive_load
from tests.cases import cases, sure
from tests.load.loads import CLIENTS
from tests.places import begin
from tests.servers import serving

pytestmark = pytest.mark.alone

FAST_SERVER = """
import asyncio, sys
HEAD = b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"
ANSWER = HEAD + b"1\\r\\nx\\r\\n" * 2000 + b"0\\r\\n\\r\\n"
class Answers(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        self.transport.write(ANSWER * data.count(b"\\r\\n\\r\\n"))
async def main():
    server = await asyncio.get_running_loop().create_server(Answers, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


@contextmanager
def running(code: str, core: int) -> Iterator[subprocess.Popen[str]]:
    pin = lambda: os.sched_setaffinity(0, {core})  # noqa: E731
    with begin(sys.executable, "-c", code, preexec_fn=pin) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def pinned(core: int) -> Iterator[None]:
    """Pin this thread, and the workers it starts, to this core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@pytest.fixture
def cores() -> tuple[int, int]:
    """Choose a core for the client and one for the server (the same one on a machine with one)."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[-1], allowed[0]


@contextmanager
def hogging(hogs: int, core: int) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(hogs):
            stack.enter_context(running("while True: pass", core))
        yield


def verdict_on(url: str, core: int, body: bytes, client: Client) -> ClientVerdict:
    request = Request(url, expect_body=body)
    # Every read is timed: with hogs there may be too few for one in 64.
    load = Load(request, client=client, connections=8, processes=1, pickup_every=1)
    with pinned(core):
        return drive_load(load, Timing(0.2, 0.2, windows=1, window_s=0.6)).verdict


@pytest.mark.parametrize("client", CLIENTS)
@cases("hogs", 0, 2)
def test_a_fast_server_leaves_no_slack(cores: tuple[int, int], hogs: int, client: Client) -> None:
    core, server = cores
    with running(FAST_SERVER, server) as process:
        url = f"http://127.0.0.1:{sure(process.stdout).readline().strip()}/"
        with hogging(hogs, core):
            verdict = verdict_on(url, core, b"x" * 2000, client)
    assert verdict.client_bound
    if hogs:  # CPU time alone would say that the client was idle most of the time
        assert verdict.run_queue_wait is not None and verdict.run_queue_wait > 0.3


@pytest.mark.parametrize("client", CLIENTS)
@cases("hogs", 0, 2)
def test_a_slow_server_leaves_it_idle(cores: tuple[int, int], hogs: int, client: Client) -> None:
    with serving(delay_s=0.1) as server, hogging(hogs, cores[0]):
        verdict = verdict_on(server.url, cores[0], b"ok", client)
    assert not verdict.client_bound, verdict.reasons
    assert verdict.pickup_p50_ns is None or verdict.pickup_p50_ns < 10e6
