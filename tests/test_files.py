"""A file appears whole, or nothing does."""

from __future__ import annotations

from pathlib import Path

import pytest

from serve_bench.files import check_writable, why, write_whole


def test_a_file_is_written_and_an_older_one_replaced(tmp_path: Path) -> None:
    for content in ("one", b"two"):
        write_whole(tmp_path / "x.txt", content)
    assert (tmp_path / "x.txt").read_text() == "two"
    assert [file.name for file in tmp_path.iterdir()] == ["x.txt"]


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder" / "full").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "folder", "x")
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]


def test_whether_a_file_can_be_written_is_known_before(tmp_path: Path) -> None:
    check_writable(tmp_path / "x.txt")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    for path, reason in ((tmp_path, "is a folder"), (tmp_path / "file" / "x", "not a directory")):
        with pytest.raises(OSError) as caught:
            check_writable(path)
        assert why(caught.value) == reason
