import json
from pathlib import Path

import pytest

from serve_bench.core.chat import Completions, Lengths, chat_url, read_lengths
from tests.cases import Call, Patch, cases
from tests.servers import Steps, serving

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%s"
CHAT = (
    b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
    b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
    b'data: {"choices":[{"delta":{"content":"b"}}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}\n\n'
    b"data: [DONE]\n\n"
)


def stream(body: bytes) -> Steps:
    return [(0.0, STREAM % (len(body), body))]


def test_no_stream_is_refused(tmp_path: Path, call: Call) -> None:
    with serving() as server:
        words = ("load", server.url, "--protocol", "stream", "--out", tmp_path / "out")
        (line,) = call(*words, code=2)[1].splitlines()
    assert "has no event of the kind sse" in line and "--protocol http" in line
    assert not (tmp_path / "out").exists() and len(server.log) == 1
    # So is a folder in use.
    (tmp_path / "file").write_text("x")
    with serving(steps=lambda number: stream(b"data: a\n\n")) as server:
        _, err = call("load", server.url, "--protocol", "stream", "--out", tmp_path, code=2)
    assert "is not empty" in err and not server.log


def test_a_slow_first_request_is_shown(tmp_path: Path, call: Call, monkeypatch: Patch) -> None:
    monkeypatch.setattr("serve_bench.cli.progress.QUIET_S", 0.5)
    monkeypatch.setattr("serve_bench.cli.progress.TICK_S", 0.1)
    words = ("--protocol", "stream", "-c", "1", "-n", "1", "--live", "plain")
    with serving(steps=lambda number: stream(b"data: a\n\n"), delay_s=1.5) as server:
        out, err = call("load", server.url, *words, "--out", tmp_path / "out")
    first = "first request, before the load, given up after 30 s | for 1 s, since "
    assert err.startswith(first) and len(server.log) == 2
    assert "not steady" not in out  # a number of requests has no warm-up


def test_a_load_of_streams(tmp_path: Path, call: Call) -> None:
    out = tmp_path / "out"
    words = ("--protocol", "stream", "-c", "2", "-d", "500ms", "--slo", "ttft_p50=10s,itl_p50=10s")
    with serving(steps=lambda number: stream(b"data: a\n\n" * 3), delay_s=0.005) as server:
        shown, _ = call("load", server.url, *words, "--out", out)
    for word in ("2 connections, stream", "events/s", "TTFB", "TTFT", "ITL", "met"):
        assert word in shown
    (row,) = json.loads(call("report", out, "--format", "json")[0])["rows"]
    assert row["row"]["protocol"] == "stream" and row["figures"]["events"]["value"] > 0
    (trial,) = row["trials"].values()
    assert trial["requests"]["merged"] * 3 == trial["requests"]["events"] * 2
    assert set(row["figures"]) >= {"ttfb_p50", "ttft_p50", "itl_p50"}


def test_chat_completions_have_tokens(tmp_path: Path, call: Call) -> None:
    with serving(steps=lambda number: stream(CHAT)) as server:
        words = ("--openai", "--model", "m", "--input-tokens", "7", "--output-tokens", "2")
        call("load", server.url, *words, "-c", "2", "-n", "10", "--out", tmp_path)
    (row,) = json.loads(call("report", tmp_path, "--format", "json")[0])["rows"]
    (trial,) = row["trials"].values()
    assert trial["requests"]["tokens"] == {"requests": 10, "prompt": 50, "answer": 20}
    assert row["figures"]["tokens"]["value"] > 0
    assert len(server.log) == 11  # one of them before the load
    for entry in server.log:
        body = json.loads(entry.body)
        assert (body["model"], body["stream"], body["max_tokens"]) == ("m", True, 2)
        assert len(body["messages"][0]["content"].split()) == 7
        assert entry.head.startswith(b"POST /v1/chat/completions ")
        assert b"content-type: application/json" in entry.head


@cases(
    "url, address",
    ("http://h:1", "http://h:1/v1/chat/completions"),
    ("http://h:1/", "http://h:1/v1/chat/completions"),
    ("http://h:1/v1/", "http://h:1/v1/chat/completions"),
    ("http://h/a/v1", "http://h/a/v1/chat/completions"),
    ("http://h/custom/path", "http://h/custom/path"),
)
def test_the_address_of_the_completions(url: str, address: str) -> None:
    assert chat_url(url) == address


def test_lengths_are_drawn_with_their_mean_and_spread() -> None:
    assert read_lengths("200,50") == Lengths(200.0, 50.0)
    with pytest.raises(ValueError, match="1,2,3"):
        read_lengths("1,2,3")
    kind = Completions("m", Lengths(100, 20), Lengths(50))
    bodies = [json.loads(body) for body in kind.bodies()]
    words = [len(body["messages"][0]["content"].split()) for body in bodies]
    assert 95 < sum(words) / len(words) < 105 and max(words) > 120 > 80 > min(words)
    assert {body["max_tokens"] for body in bodies} == {50}
    assert kind.bodies()[0] == json.dumps(bodies[0]).encode()
    long = Completions("m", Lengths(1_000_000), Lengths(50))
    assert len(long.bodies()) == 5  # bounded by their words
    assert len(kind.bodies(most=2)) == 2
