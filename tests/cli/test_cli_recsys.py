"""`serve-bench recsys` and `sweep` as commands: flags, bad input, ladders against URLs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from serve_bench.cli.program import run
from serve_bench.store import read
from tests import places
from tests.servers import every, serving

BAD = [
    (
        "recsys --users 0",
        "--users: '0' is not allowed; it takes auto, published, or numbers from 1",
    ),
    ("recsys --users 10,x", "--users: 'x' is not allowed"),
    ("recsys --users 10,10", "--users: 10 stands there twice"),
    ("recsys --ranker-replicas 0", "--ranker-replicas: '0' is not allowed; it takes a whole"),
    ("recsys --ranker-replicas 1,1", "num_replicas: 1 is given twice"),
    ("recsys --ranker fast", "--ranker: 'fast' is not allowed; it takes plain or tuned"),
    ("recsys --device gpu", "--device: 'gpu' is not allowed; it takes auto, cpu or cuda"),
    ("recsys --threads none", "--threads: 'none' is not allowed"),
    ("recsys --gpu-fraction 1.5", "--gpu-fraction: '1.5' is not allowed; it takes a number above"),
    ("recsys --gpu-fraction 0", "--gpu-fraction: '0' is not allowed"),
    ("recsys --duration 0", "--duration: 0.0 is not allowed; it takes 0.5 to 86400"),
    ("recsys --launches 0", "--launches: 0 is not allowed"),
    ("recsys --variant fast", "--variant: unknown variant 'fast'"),
    ("recsys --url http://h/", "--url: 'http://h/' is not allowed; it takes NAME=URL"),
    ("recsys --url a=ftp://h/", "--url: unknown scheme 'ftp'"),
    ("recsys --url a=http://h/?user_id=3", "is not allowed; ?user_id=... is added to it"),
    ("recsys --url a=http://h/ --url a=http://i/", "--url: the name a is given twice"),
    ("recsys --url a=http://h/ --ranker both", "it does not go with --ranker"),
    ("recsys --url a=http://h/ -H token", "--header: 'token' is not allowed"),
    ("recsys -H Token:x", "-H: is for --url"),
    (f"recsys --resume {places.FORMATS}/1-recsys.jsonl --quick", "it does not go with --quick"),
    ("recsys --format html5", "--format: 'html5' is not allowed"),
    ("sweep --users 5,0", "--users: '0' is not allowed"),
    ("sweep --duration 0.1", "--duration: 0.1 is not allowed; it takes 0.5 to 86400"),
    ("sweep --url a=http://h/ --app noop", "it does not go with --app"),
    ("sweep --url a=http://[::1/", "--url: 'http://[::1/' cannot be read: Invalid IPv6 URL"),
    ("sweep --ranker tuned", "--ranker: the app noop has no ranker"),
    (f"sweep --resume {places.FORMATS}/1-sweep.jsonl --quick", "it does not go with --quick"),
    ("micro --app mnist", "--app: unknown app 'mnist'; allowed: noop, ranker, recsys"),
    ("micro --ranker tuned", "--ranker: the app noop has no ranker; it is for ranker, recsys"),
    ("micro --app recsys --body-type str", "--body-type: the app recsys has no body_type"),
    ("micro --app ranker --data-size large", "--data-size: the app ranker takes no body"),
    ("micro --app recsys --intermediate-handle", "the app recsys has no intermediate_handle"),
]


@pytest.mark.parametrize(("line", "message"), BAD, ids=[line for line, _ in BAD])
def test_bad_input_is_one_line_and_exit_code_2(
    line: str, message: str, refuses: Callable[[str, str], None]
) -> None:
    refuses(line, message)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("recsys --table-rows 10000000", "smaller tables"),
        ("micro --app ranker --table-rows 100000000", "a whole number from 1 to 10000000"),
    ],
)
def test_tables_that_do_not_fit_are_refused(
    line: str, message: str, refuses: Callable[[str, str], None]
) -> None:
    refuses(line, message)


@pytest.mark.long
@pytest.mark.process
def test_ladders_against_services_that_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving() as good, serving(script=every(2, "error500")) as bad:
        urls = [f"--url=good={good.url}", f"--url=bad={bad.url}sub"]
        flags = ["--users", "1,3", "--duration", "0.6", "-H", "X-Token: s3cret"]
        code = run(["recsys", *urls, *flags, "--out", str(tmp_path / "r")])
    assert code == 0
    table = capsys.readouterr().out
    result = read(tmp_path / "r")
    assert [(one.variant, one.row.connections) for one in result.trials] == [
        *(("good", 1), ("good", 3)),
        *(("bad", 1), ("bad", 3)),
    ]
    assert "s3cret" not in (tmp_path / "r" / "records.jsonl").read_text()
    heads = {exchange.head.split(b" ", 2)[1] for exchange in bad.log}
    assert {b"/sub?user_id=1", b"/sub?user_id=2"} <= heads and len(heads) > 50
    assert all(b"s3cret" in exchange.head for exchange in bad.log)
    assert all(one.counts.failed == {} for one in result.trials[:2])
    assert all(one.counts.failed["status"] > 0 for one in result.trials[2:])
    assert table.count("what limited it is not visible") == 1
    assert "good: the list is measured" in table
    assert " ".join(table.split()).count("with status 500") == 2
    assert run(["recsys", "--resume", str(tmp_path / "r")]) == 2
    assert "holds a run of --url, whose headers are not kept" in capsys.readouterr().err


@pytest.mark.process
def test_a_service_that_is_not_there_fails_its_steps_and_the_rest_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving() as good:
        urls = ["--url=gone=http://127.0.0.1:9/", f"--url=good={good.url}"]
        flags = ["--users", "2", "--duration", "0.5", "--format", "json"]
        assert run(["recsys", *urls, *flags, "--out", str(tmp_path / "r")]) == 1
    page = json.loads(capsys.readouterr().out)
    (ladder,) = [one for one in page["ladders"] if one["variant"] == "good"]
    assert ladder["knee_users"] == ladder["best_users"] == 2
    assert ladder["end"] == "the list is measured"
    (gone,) = [one for one in page["ladders"] if one["variant"] == "gone"]
    assert gone["knee_users"] is None and "measured again: 2 users" in gone["end"]
    (failure,) = read(tmp_path / "r").failures
    assert failure.variant == "gone" and failure.row is not None
    assert failure.row.connections == 2


@pytest.mark.long
@pytest.mark.process
def test_sweep_finds_where_a_server_saturates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four requests at once, 20 ms each: 200 requests/s from 4 users on, whatever comes on top."""
    with serving(delay_s=0.02, capacity=4) as server:
        flags = ["--users", "1,2,4,8,16", "--duration", "0.9", "--format", "json"]
        url = f"--url=s={server.url}x?a=b"
        assert run(["sweep", url, *flags, "--out", str(tmp_path / "r")]) == 0
    page = json.loads(capsys.readouterr().out)
    (ladder,) = page["ladders"]
    assert ladder["users"] == [1, 2, 4, 8, 16]
    assert ladder["knee_users"] == 4 and ladder["collapse_users"] == []
    assert {exchange.head.split(b" ", 2)[1] for exchange in server.log} == {b"/x?a=b"}
    assert read(tmp_path / "r").run.command == "sweep"
