"""Protocols on a real Serve: rows of streams and of gRPC beside HTTP, handles, and own apps."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serve_bench.analysis.statistics import merged
from serve_bench.core.app_spec import own_spec
from serve_bench.core.load_result import LoadResult
from serve_bench.core.load_spec import Load, Streaming, Timing
from serve_bench.core.own_app import Asked
from serve_bench.core.request_spec import Request
from serve_bench.core.traffic import Row
from serve_bench.load.driver import drive_load
from serve_bench.load.failures import LoadError
from serve_bench.serving.own_apps import own_app
from serve_bench.serving.server import Serving
from serve_bench.store import read
from tests.cases import cases, sure
from tests.integration.conftest import SHORT, measure, put_on_path, run_checked

pytestmark = [pytest.mark.ray]

STAND_IN = Path(__file__).parent.parent.parent / "examples" / "chat" / "stand_in.py"

TEXT = Path(__file__).parent.parent.parent / "examples" / "grpc"

TOKENS = 20

CLIENTS = {"http": "raw", "stream": "raw", "grpc": "grpc", "handle": "handle"}

CHAT = "/v1/chat/completions"
MESSAGE = {"role": "user", "content": "How are you"}
BODY = {"messages": [MESSAGE], "stream": True, "max_tokens": TOKENS}


@pytest.mark.ci
def test_rows_of_all_protocols(tmp_path: Path) -> None:
    protocols = ("http", "stream", "grpc", "grpc-stream", "handle", "handle-stream")
    line = f"--protocol {','.join(protocols)} --stream-events 4 --clients raw:4 --num-replicas 1"
    more = "--max-ongoing-requests 100 --variant default,optimized --slo p50=10s"
    result = measure(["micro", *SHORT, *f"{line} {more}".split()], tmp_path)
    assert not result.failures and len(result.trials) == 12
    assert {trial.row.protocol for trial in result.trials} == set(protocols)
    for trial in result.trials:
        assert trial.counts.completed > 0 and not trial.counts.failed
        assert trial.usage.processes
        assert trial.row.client == CLIENTS[trial.row.protocol.split("-")[0]]
        if not trial.row.traffic.streams:
            assert "events" not in trial.metrics and "ttft" not in trial.metrics
            continue
        events, requests = trial.row.stream_events, trial.counts.completed
        assert events == 4
        assert merged([trial], "ttft").count == requests
        assert merged([trial], "itl").count == requests * (events - 1)
        assert trial.client.events > 0


@pytest.mark.long
def test_an_echo_by_every_protocol_and_through_a_deployment_in_front(tmp_path: Path) -> None:
    """Bodies are compared with what was sent; a stream's are counted."""
    line = "micro --protocol http,stream,grpc,grpc-stream,handle,handle-stream --quick"
    echo = "--response-size echo --data-size 3000 --stream-events 4 --intermediate-handle"
    more = "--clients raw:2 --num-replicas 1 --variant optimized"
    result = measure(f"{line} {echo} {more}", tmp_path)
    assert not result.failures and len(result.trials) == 6
    for trial in result.trials:
        assert trial.counts.completed > 0 and not trial.counts.failed
        bodies = (trial.row.stream_events or 1) * (trial.counts.completed - 4)  # but for the ends
        assert sure(trial.client.bytes_received) > 3000 * bodies > 0
        assert trial.row.label.endswith("echo of 3 kB")


CALLS = """
import asyncio, os
from ray import serve

@serve.deployment(max_ongoing_requests=4, max_queued_requests=2)
class Calls:
    async def echo(self, message):
        return message

    async def late(self, message):
        await asyncio.sleep(1.0)
        return message

    async def wrong(self, message):
        raise KeyError("no such thing")

    async def exit(self, message):
        os._exit(1)

    async def stall(self, message):
        yield message
        await asyncio.sleep(30)
        yield message

    async def nothing(self, message):
        for _ in ():
            yield message

    async def __call__(self, request):
        return "ok"

app = Calls.bind()
"""


@cases(
    "variant",
    pytest.param("default", marks=pytest.mark.long),
    pytest.param("optimized", marks=pytest.mark.ci),
)
def test_how_calls_of_a_handle_fail(
    tmp_path: Path, variant: str, shared_serving: Callable[[str], Serving]
) -> None:
    """Each in a class of its own; and the account of the requests holds (the engine checks it)."""
    (tmp_path / "calls.py").write_text(CALLS)
    app = own_spec(own_app(f"{tmp_path}/calls.py:app", "TARGET", asked=Asked("/")))
    assert app.own_app is not None
    name = app.own_app.name
    row = Row("4 callers, handle", "handle", 4, protocol="handle")
    serving = shared_serving(variant)
    put_on_path(serving, tmp_path / "calls.py")
    serving.deploy(app, {})

    def classes(method: str, streams: bool = False, **more: Any) -> LoadResult:
        url = f"{serving.url_of(row)}/{name}/{method}"
        streaming = Streaming(event_timeout_s=0.3) if streams else None
        load = Load(
            Request(url, "POST", body=b"x", expect_body=more.pop("expect_body", None)),
            client="handle",
            connections=more.pop("connections", 2),
            timeout_s=more.pop("timeout_s", 5.0),
            connect_timeout_s=60.0,
            streaming=streaming,
            environment=serving.environment_of(row),
        )
        return drive_load(load, Timing(0.2, 0.2, 2, 0.5))

    odd = {"nothing": ["exception"]} if variant == "optimized" else {}
    good = classes("echo", expect_body=b"x")
    assert good.measured.completed > 0 and not good.measured.failed
    assert good.workers[0].non_idle is not None
    for method, streams, kind, more in (
        ("echo", False, "body", {"expect_body": b"y"}),
        ("wrong", False, "exception", {}),
        ("late", False, "timeout", {"timeout_s": 0.3}),
        ("stall", True, "stalled", {}),
        ("nothing", True, "event", {}),
        ("missing", False, "exception", {}),
    ):
        failed = classes(method, streams, **more).total.failed  # the first may be all
        # By gRPC, Serve 2.60 ends some empty streams with a RuntimeError of its own.
        assert kind in failed and set(failed) <= {kind, *odd.get(method, ())}, (method, failed)
    # Of 12 callers 4 are served and 2 wait; the others are rejected, and try again at once.
    assert set(classes("late", connections=12).total.failed) == {"rejected"}
    # Serve may give a call whose replica died to the next replica, until it is timed out.
    died = classes("exit").total.failed
    assert died and set(died) <= {"reset", "timeout"}, died
    with pytest.raises(LoadError, match="no handle"):
        drive_load(
            Load(
                Request(f"{serving.url_of(row)}/no_such_app/echo", "POST"),
                client="handle",
                connect_timeout_s=60.0,
                environment=serving.environment_of(row),
            ),
            Timing(0.2, 0.2, 1, 0.5),
        )


def test_an_app_of_ones_own_streams_and_completes_chats(resumed: bool, tmp_path: Path) -> None:
    shutil.copy(STAND_IN, tmp_path)
    words = ["run", "stand_in.py:app", "--openai", "--model", "stand-in", "--quick"]
    words += ["--input-tokens", "30,5", "--output-tokens", f"{TOKENS}", "--clients", "raw:2,raw:4"]
    words += ["--slo", "ttft_p50=10s"]
    trials = measure(words, tmp_path).trials
    assert len(trials) == 2
    for trial in trials:
        requests, tokens = trial.counts.completed, sure(trial.client.tokens)
        assert requests > 0 and not trial.counts.failed
        assert merged([trial], "itl").count == requests * (TOKENS - 1)
        assert tokens.answer == tokens.requests * TOKENS
        assert 20 < tokens.prompt / tokens.requests < 40
    if resumed:
        # A row that is missing is measured again, with the same chats.
        records = tmp_path / "run" / "records.jsonl"
        lines = records.read_text().splitlines(keepends=True)
        last = next(line for line in lines if '"kind":"trial"' in line and "/4-connections" in line)
        records.write_text("".join(line for line in lines if line != last))
        (_, second) = measure([*words, "--resume", "run"], tmp_path).trials
        assert second.row.connections == 4 and sure(second.client.tokens).answer > 0
        # As a stream of which no more is known.
        line = f"run stand_in.py:app --protocol stream --route {CHAT} --quick --clients raw:2"
        run_checked([*line.split(), "--body", json.dumps(BODY), "--out", "stream"], tmp_path)
        (trial,) = read(tmp_path / "stream").trials
        assert trial.counts.completed > 0 and not trial.counts.failed
        # Who answers, the tokens, why it ends, and the usage: without [DONE].
        assert merged([trial], "itl").count == trial.counts.completed * (TOKENS + 2)
        assert not trial.client.notes


@pytest.mark.long
def test_an_app_of_ones_own_is_asked_by_grpc(tmp_path: Path) -> None:
    shutil.copytree(TEXT, tmp_path, dirs_exist_ok=True)
    words = ["run", "text.py:app", "--grpc-servicer", "text_grpc.add_text", "--quick"]
    words += ["--body", '"how are you today"', "--clients", "raw:2"]
    words += ["--variant", "default,optimized"]
    for protocol, method, events in (("grpc", "Upper", 0), ("grpc-stream", "Words", 4)):
        route = ["--protocol", protocol, "--route", f"/examples.Text/{method}"]
        run_checked([*words, *route, "--out", protocol], tmp_path)
        result = read(tmp_path / protocol)
        assert not result.failures and len(result.trials) == 2
        for trial in result.trials:
            assert trial.row.protocol == protocol and trial.usage.processes
            assert trial.counts.completed > 0 and not trial.counts.failed
            if events:
                assert merged([trial], "itl").count == trial.counts.completed * (events - 1)


@pytest.mark.ci
def test_an_app_without_the_method_is_refused_at_its_deploy(tmp_path: Path) -> None:
    shutil.copytree(TEXT, tmp_path, dirs_exist_ok=True)
    text = (tmp_path / "text.py").read_text()
    (tmp_path / "text.py").write_text(text.replace("async def Upper", "async def Lower"))
    words = ["run", "text.py:app", "--protocol", "grpc", "--grpc-servicer", "text_grpc.add_text"]
    words += ["--route", "/examples.Text/Upper", "--quick"]
    (failure,) = measure(words, tmp_path, 1).failures
    assert "/examples.Text/Upper on port" in failure.message
    assert "Tried to call a method 'Upper' that does not exist" in failure.message
