"""`serve-bench recsys` and `sweep` as commands: flags, bad input, ladders against URLs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from serve_bench.cli.program import run
from serve_bench.store import read
from tests.servers import every, serving


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
@pytest.mark.alone
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


@pytest.mark.alone
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
@pytest.mark.alone
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
