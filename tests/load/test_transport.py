import asyncio
import ssl
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any, Final

import pytest

from serve_bench.core.load_result import LoadResult, Progress
from serve_bench.core.load_spec import Client, Load, Timing
from serve_bench.core.plan import row_of, trial_of
from serve_bench.core.request_spec import Request
from serve_bench.core.result import PlannedTrial
from serve_bench.load import exchanges as reactions
from serve_bench.load import raw
from serve_bench.load.connection import RECORD
from serve_bench.load.driver import drive_load
from serve_bench.load.failures import LoadError
from serve_bench.load.pacing import Timer
from tests import servers
from tests.cases import cases, sure
from tests.load.loads import TIMING, injected_failures, mixed, run_here, timed_here

pytestmark = pytest.mark.process

CLIENTS = cases("client", "raw", "aiohttp")


def load_of(request: Request, client: Client, **options: Any) -> Load:
    settings = {"connections": 3, "count": 30, "timeout_s": 2.0} | options
    return Load(request, client=client, **settings)


def run(request: Request, client: Client, **options: Any) -> LoadResult:
    return run_here(load_of(request, client, **options))


def run_in_worker(request: Request, client: Client, **options: Any) -> LoadResult:
    return drive_load(load_of(request, client, **options), TIMING)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    """Make a self-signed certificate for localhost, and a server's settings with it."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return cert, context


LONG: Final = b"a" * 10_000_000
"""More than the kernel's buffers hold."""


def test_no_request_follows_one_that_was_answered_before_it_was_sent_whole() -> None:
    """A replica that does not read the body of a post answers it so."""
    with servers.serving(early=True) as server:
        request = Request(server.url, method="POST", body=LONG, expect_body=b"ok")
        load = load_of(request, "raw", count=None)
        result = drive_load(load, Timing(0.2, 0.2, windows=3, window_s=0.2))
    assert {exchange.method for exchange in server.log} == {"POST"}
    assert result.total.failed == {} and result.total.completed > 3
    assert result.reconnects > 0 and 0 < result.early <= result.completed_in_windows
    planned = PlannedTrial("k", 1, "url", {"url": "u"}, row_of(load))
    (note,) = trial_of(planned, "", "at", result, 1.0).client.notes
    assert note.startswith(f"{result.early:,} of {result.completed_in_windows:,} requests were")
    # An answer counts though the rest of the request was refused.
    with servers.serving(servers.always("too_large"), early=True) as server:
        result = run(Request(server.url, method="POST", body=LONG), "raw")
    assert result.total.failed == {"status": 30} and len(server.log) == 30
    assert result.status_codes == {413: 30}


@cases("scheme", "http", "https")
def test_edges_between_an_answer_and_the_next_request_leave_the_account_whole(
    scheme: str, certificate: tuple[Path, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers of one look are read before requests are sent; each takes 1 ms, measured anywhere."""

    def late() -> int:
        time.sleep(0.001)
        return time.perf_counter_ns()

    monkeypatch.setattr(raw, "perf", late)
    monkeypatch.setattr(reactions, "perf", late)
    cert, context = certificate
    sent = 0
    for place in range(12):
        with servers.serving(tls=context if scheme == "https" else None) as server:
            request = Request(server.url, ca_file=str(cert))
            load = load_of(request, "raw", count=None, connections=8)
            with timed_here(load, 2, 0.02, 30_000_000 + place * 1_300_000) as (counts, tally, _):
                sent += counts.sent
        assert counts.sent == counts.completed
        assert tally.completed == len(server.log)
    assert sent > 0


@CLIENTS
def test_https_failures_by_class(client: Client, certificate: tuple[Path, ssl.SSLContext]) -> None:
    cert, context = certificate
    with servers.serving(mixed(7), tls=context) as server:
        request = Request(server.url, expect_body=b"ok", ca_file=str(cert))
        result = run_in_worker(request, client, connections=6, count=150, timeout_s=1.0)
    expected = injected_failures(server)
    assert expected.total() >= 10 and result.total.failed == expected
    assert result.total.completed == server.actions["ok"]
    assert result.total.in_flight == 0 and result.total.sent == len(server.log)


@cases("length", b"Content-Length: %7d\r\n", b"", ids=["length", "until the end"])
@cases("more", -1, 0, 1)
@cases("records", 1, 2, reactions.RECORDS_AT_ONCE, 20)
def test_https_responses_of_whole_records(
    length: bytes,
    more: int,
    records: int,
    certificate: tuple[Path, ssl.SSLContext],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And of a byte more or less; without a length the end of the connection ends them."""
    size = records * RECORD + more
    head = b"HTTP/1.1 200 OK\r\n" + length + b"\r\n"
    head = head % (size - len(head % 0)) if length else head
    body = b"a" * (size - len(head))

    async def answer(writer: asyncio.StreamWriter) -> bool:
        writer.write(head + body)
        await writer.drain()
        return bool(length)

    monkeypatch.setitem(servers.ACTIONS, "records", answer)
    cert, context = certificate
    with servers.serving(servers.always("records"), tls=context) as server:
        request = Request(server.url, expect_body=body, ca_file=str(cert))
        result = run(request, "raw")
    assert result.total.failed == {} and result.total.completed == 30 == len(server.log)
    assert server.connections <= (3 if length else 33)


@CLIENTS
def test_https_not_verified(client: Client, certificate: tuple[Path, ssl.SSLContext]) -> None:
    with servers.serving(tls=certificate[1]) as server:
        with pytest.raises(LoadError, match=r"^connect: .*certificate verify failed") as caught:
            run_in_worker(Request(server.url), client)
        assert "\n" not in str(caught.value)
        result = run_in_worker(Request(server.url, verify_tls=False), client)
    assert result.total.completed == 30


@CLIENTS
def test_tls_to_a_server_without_it(client: Client) -> None:
    class Plain(StreamRequestHandler):
        def handle(self) -> None:
            self.request.recv(9_999)
            self.request.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with ThreadingTCPServer(("127.0.0.1", 0), Plain) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"https://127.0.0.1:{server.server_address[1]}/"
        with pytest.raises(LoadError, match=r"^connect: .*TLS failure") as caught:
            run_in_worker(Request(url), client)
        server.shutdown()
    assert "\n" not in str(caught.value)


@CLIENTS
def test_unix_sockets_and_ipv6(client: Client, tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with servers.serving(servers.every_nth(7, "close_before"), unix_path=path) as server:
        result = run(Request("http://localhost/x", unix_socket=path), client)
    assert result.total.sent == 30 == len(server.log)
    assert result.total.failed == {"reset": 4}
    assert b"GET /x HTTP/1.1" in server.log[0].head
    if "0" * 31 + "1" in Path("/proc/net/if_inet6").read_text(encoding="ascii"):  # ::1 is there
        with servers.serving(host="::1") as server:
            result = run(Request(server.url), client)
        assert result.total.completed == 30
        assert f"Host: [::1]:{server.port}".encode() in server.log[0].head


PATHS = ("/recsys/?user_id=0", "/recsys/?user_id=1", "/other")


def targets(server: servers.KnownServer) -> list[str]:
    return [exchange.head.split(b" ", 2)[1].decode() for exchange in server.log]


@CLIENTS
def test_paths_and_bodies_are_cycled_together(client: Client) -> None:
    big = bytes(range(256)) * 8192  # 2 MiB: more than the socket takes at once
    with servers.serving() as server:
        request = Request(server.url, method="POST", paths=PATHS, bodies=(b"one", big))
        result = run(request, client, connections=1, count=12)
    assert result.total.completed == 12 and {e.method for e in server.log} == {"POST"}
    assert targets(server) == [*PATHS] * 4
    assert [exchange.body for exchange in server.log] == [b"one", big, b"one"] * 4


def test_both_clients_send_the_same_targets_however_odd() -> None:
    odd = "/ /e? //x /a/../b /a%2Fb?q=%20+ /?x=[1]&y /a;b /%zz /a?b?c=http://x/ /\\ /p:1@h "
    odd += "/'\"<>{}|^`"
    paths = tuple(odd.split())

    def sent(client: Client) -> list[str]:
        with servers.serving() as server:
            run(Request(server.url, paths=paths), client, connections=1, count=len(paths))
        return targets(server)

    assert sent("raw") == sent("aiohttp") == ["/", "/e", *paths[2:]]


@CLIENTS
def test_without_keepalive_every_request_has_its_connection(client: Client) -> None:
    with servers.serving(servers.always("connection_close"), delay_s=0.001) as server:
        request = Request(server.url, headers=(("Authorization", "Bearer t"), ("X-Two", "2")))
        result = run(request, client, keepalive=False)
    assert result.total.completed == 30
    assert 30 <= server.connections <= 34
    assert all(b"connection: close" in e.head.lower() for e in server.log)
    assert all(b"X-Two: 2\r\n" in e.head for e in server.log)


@CLIENTS
@cases("action", "close_before", "error500", "reset", "silent")
def test_retries_are_counted_apart(client: Client, action: str) -> None:
    nth = 10
    with servers.serving(servers.every_nth(nth, action), delay_s=0.002) as server:
        request = Request(server.url, paths=PATHS)
        result = run(request, client, retries=3, connections=1, timeout_s=0.4)
    answered = zip(targets(server), server.log, strict=True)
    assert [path for path, exchange in answered if exchange.action == "ok"] == [*PATHS] * 10
    injected = server.actions[action]
    assert injected >= 3
    assert result.total.failed == {}
    assert result.total.sent == result.total.completed == 30
    assert result.total.completed + result.retried == len(server.log)
    assert result.retried == injected
    # The latency of a retried request runs from its first attempt, the service time from its last.
    assert sure(result.latency.mean) > sure(result.service_time.mean)


@CLIENTS
def test_retries_end(client: Client) -> None:
    with servers.serving(servers.always("error500")) as server:
        result = run(Request(server.url), client, retries=2, count=6, connections=2)
    assert result.total.failed == {"status": 6}
    assert result.retried == 12
    assert len(server.log) == 18


def test_a_retry_waits_as_long_as_the_server_asks() -> None:
    with servers.serving(servers.every_nth(2, "error429")) as server:
        request = Request(server.url)
        run(request, "raw", retries=1, honor_retry_after=True, count=2, connections=1)
    _, refused, again = server.log
    assert again.received_ns - refused.answered_ns >= 10**9


@CLIENTS
def test_a_server_that_goes_away_is_connect_failures(client: Client) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(servers.serving())

        def leave(progress: Progress) -> None:
            if progress.phase == "measure":
                stack.close()

        load = Load(Request(server.url), client=client, connections=2)
        result = drive_load(load, Timing(0.1, 0.1, windows=1, window_s=0.8), on_progress=leave)
    failed = result.measured.failed
    assert failed["connect"] >= 2
    assert set(failed) <= {"connect", "reset", "truncated"}
    # A failed connect is followed by a pause, so two connections cannot fail without end.
    assert failed["connect"] < 100
    assert result.total.completed >= len(server.log) - 2


def test_a_load_on_the_pollers_own_timeout() -> None:
    with servers.serving(servers.every_nth(5, "close_before")) as server:
        load = load_of(Request(server.url), "raw", rate=300.0)
        opened = run_here(load, lambda engine: setattr(engine, "timer", Timer()))
    assert opened.total.failed == {"reset": 6} and opened.total.completed == 24
    assert opened.send_lag.count == 30
