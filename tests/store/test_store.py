import os
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from unittest.mock import Mock

import pytest

from serve_bench.core.errors import BadInput, RunFailed
from serve_bench.core.result import Result, Resume
from serve_bench.observing.profiler import Profiling
from serve_bench.store import RECORDS_FILE, RunFolder, read
from serve_bench.store.files import check_reachable, check_writable, why, write_whole
from tests import places
from tests.cases import cases, refusal
from tests.records import AT, ROWS, launch, planned, run, store_run, trial

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FIRST, SECOND = planned(row=ROWS[0]), planned(row=ROWS[1])


def test_what_is_appended_is_read(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "out", now=NOW) as folder:
        for record in (run(FIRST), launch(), trial(FIRST)):
            folder.append(record)
        # Read while it is still open: each record is on the disk when append returns.
        assert read(folder.path).trials == (trial(FIRST),)
    assert read(tmp_path / "out").launches == (launch(),)
    assert read(tmp_path / "out" / RECORDS_FILE).run == run(FIRST)


def test_the_default_folder_is_the_utc_time_and_never_reused(tmp_path: Path) -> None:
    at_home = NOW.astimezone(timezone(timedelta(hours=5)))
    names = []
    for _ in range(3):
        with RunFolder.create(now=at_home, results=tmp_path / "results") as folder:
            names.append(folder.path.name)
    assert names == ["20260102T030405Z", "20260102T030405Z-2", "20260102T030405Z-3"]
    # Nothing is overwritten.
    done, mine = tmp_path / "done", tmp_path / "notes.txt"
    done.mkdir()  # an empty folder may be named
    store_run(done, Result(run(FIRST)))
    mine.write_text("mine")
    assert create(done).endswith(f"--resume {done}")
    assert "is not empty; name a new folder" in create(tmp_path)
    assert create(mine).endswith("is a file; a run needs a new or empty folder")
    assert "cannot make a folder" in create(mine / "below")
    assert read(done).run == run(FIRST) and mine.read_text() == "mine"


def create(path: Path) -> str:
    return refusal(RunFolder.create, path, now=NOW)


@cases("cut", "", '{"kind":"trial","key":"de')
def test_resume_loses_a_cut_off_line_alone(cut: str, tmp_path: Path) -> None:
    store_run(tmp_path, Result(run(FIRST, SECOND), trials=(trial(FIRST),)))
    with (tmp_path / RECORDS_FILE).open("a") as file:
        file.write(cut)
    again, found = RunFolder.resume(tmp_path)
    assert found.missing == (SECOND,)
    assert [warning.code for warning in found.warnings] == ["cut-off"] * bool(cut)
    with again:
        again.append(Resume(argv=(), started_at=AT))
        again.append(trial(SECOND))
    result = read(tmp_path)
    assert result.missing == ()
    assert [warning.code for warning in result.warnings] == ["broken-line"] * bool(cut)


@cases("link", "samples.jsonl", "profiles", "logs/launch-1.log")
def test_a_folder_with_links_is_not_gone_on_with(link: str, tmp_path: Path) -> None:
    place = store_run(tmp_path / "r", Result(run(FIRST))) / link
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(tmp_path / "elsewhere")
    assert f"{link}: is a link; " in refusal(RunFolder.resume, tmp_path / "r")


def test_stacks_are_written_into_the_run_alone(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "elsewhere").mkdir()
    Profiling(tmp_path / "r", "key").start([])
    (tmp_path / "r" / "profiles").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunFailed, match="leads out of the folder"):
        Profiling(tmp_path / "r", "key").start([])


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, now=NOW) as folder:
        folder.append(run(FIRST))
        said = refusal(RunFolder.resume, tmp_path)
        assert "another serve-bench is still writing this run" in said
    RunFolder.resume(tmp_path)[0].close()


@cases(
    "name, content, message",
    ("absent", None, "absent: no such folder"),
    ("", None, ": holds no run (no records.jsonl)"),
    (RECORDS_FILE, "", "records.jsonl: the file is empty: nothing was recorded"),
    (RECORDS_FILE, "hello\n", "records.jsonl: line 1 is not the record of a run"),
    (RECORDS_FILE, b"\xff\xfe\n", "records.jsonl: line 1 is not the record of a run"),
    (RECORDS_FILE, "[" * 100_000, "records.jsonl: line 1 is not the record of a run"),
    (RECORDS_FILE, '{"kind": "run", "format": 99}\n', "a newer one is needed"),
)
def test_what_cannot_be_read_is_one_line(
    tmp_path: Path, name: str, content: str | bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    said = refusal(read, tmp_path / name)
    assert said.startswith(str(tmp_path)) and said.endswith(message)
    os.mkfifo(tmp_path / "pipe")  # nobody waits for it
    assert refusal(read, tmp_path / "pipe").endswith("pipe: is no regular file")


def test_a_damaged_byte_costs_its_line_alone(tmp_path: Path) -> None:
    store_run(tmp_path, Result(run(FIRST, SECOND), trials=(trial(FIRST), trial(SECOND))))
    file = tmp_path / RECORDS_FILE
    first, second, third = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(first + second.replace(b"aiohttp", b"aio\xffttp") + third)
    result = read(tmp_path)
    assert result.missing == (FIRST,)
    assert [warning.code for warning in result.warnings] == ["broken-line"]


# A limit on the file's size makes the kernel cut a write short and then refuse it, as a full disk
# does. In a process of its own, since the limit holds for all files of a process.
FULL_DISK = """
import resource, sys
from datetime import datetime, UTC
from pathlib import Path
from serve_bench.store import RunFolder, StoreError, read
from tests.records import launch, planned, run, trial

folder = RunFolder.create(Path(sys.argv[1]), now=datetime.now(UTC))
folder.append(run(planned()))
room = (folder.path / "records.jsonl").stat().st_size + 40
resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
try:
    folder.append(trial(planned()))
except StoreError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
folder.append(launch())  # there is room again
"""


def test_a_full_disk_loses_nothing_before(tmp_path: Path) -> None:
    done = places.execute(sys.executable, "-c", FULL_DISK, tmp_path / "out", cwd=places.TOP)
    assert done.stderr == ""
    assert done.stdout.endswith("the records up to here are kept\n")
    assert done.stdout.count("\n") == 1
    result = read(tmp_path / "out")
    assert result.run.plan == (planned(),)
    assert result.launches == (launch(),)
    assert result.warnings == ()


def test_a_file_is_written_and_an_older_one_replaced(tmp_path: Path) -> None:
    for content in ("one", b"two"):
        write_whole(tmp_path / "x.txt", content)
    assert (tmp_path / "x.txt").read_text() == "two"
    (tmp_path / "folder" / "full").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "folder", "x")  # which leaves nothing
    assert sorted(file.name for file in tmp_path.iterdir()) == ["folder", "x.txt"]
    # A draft is no file of the user's.
    mine = [tmp_path / name for name in (".x.txt.part", f".x.txt.{os.getpid()}-0.part")]
    for file in mine:
        file.write_text("precious")
    check_writable(tmp_path / "x.txt")
    write_whole(tmp_path / "x.txt", "new")
    assert [file.read_text() for file in mine] == ["precious"] * 2
    assert len(list(tmp_path.iterdir())) == 4
    # A pipe stays one, and takes the content.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, "text")
        assert os.read(reader, 10) == b"text" and pipe.is_fifo()
    finally:
        os.close(reader)


def test_whether_a_file_can_be_written_is_known_before(tmp_path: Path) -> None:
    check_writable(tmp_path / "x.txt")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    for path, reason in ((tmp_path, "is a folder"), (tmp_path / "file" / "x", "not a directory")):
        with pytest.raises(OSError) as caught:
            check_writable(path)
        assert why(caught.value) == reason


def test_paths_that_cannot_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "none", tmp_path / "file" / "x"):
        check_reachable(path)
    with pytest.raises(BadInput, match=r"--output: .*: cannot be reached: file name too long"):
        check_reachable(tmp_path / ("x" * 300), "--output")
    denied = Mock(side_effect=PermissionError(13, "Permission denied"))
    monkeypatch.setattr(Path, "stat", denied)  # root may enter every folder
    with pytest.raises(BadInput, match="private: cannot be reached: permission denied"):
        check_reachable(Path("private"))
