"""A file appears whole, or nothing does."""

import os
from pathlib import Path

import pytest

from serve_bench.core.errors import BadInput
from serve_bench.store.files import check_reachable, check_writable, why, write_whole


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

    def stat(path: Path) -> None:  # root may enter every folder
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", stat)
    with pytest.raises(BadInput, match="private: cannot be reached: permission denied"):
        check_reachable(Path("private"))
