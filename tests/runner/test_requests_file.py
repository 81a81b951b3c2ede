import csv
import resource
from pathlib import Path

import pytest

from serve_bench.load.request_log import LoggedRequest, RequestLog
from serve_bench.runner.requests_file import requests_file
from serve_bench.store import StoreError
from tests.cases import sure

KEY = "default/r1/bs1-bottom=64,16/2-clients"


class Told(RequestLog):
    def rows(self) -> list[LoggedRequest]:  # type: ignore[override]  # a list can be asked twice
        return [LoggedRequest(0, -2000, 1_234_567, 200, None), LoggedRequest(1, 9, None, 0, "cut")]


def test_a_line_for_each_request(tmp_path: Path) -> None:
    with requests_file(tmp_path / "all.csv") as file:
        sure(file).append(KEY, Told())
    with (tmp_path / "all.csv").open() as lines:
        assert [list(line.values()) for line in csv.DictReader(lines)] == [
            [KEY, "0", "-0.000002", "1.235", "200", ""],
            [KEY, "1", "0.000000", "", "", "cut"],
        ]


def test_a_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    there = tmp_path / "there.csv"
    there.write_text("mine")
    with pytest.raises(StoreError, match=r"there\.csv: File exists"), requests_file(there):
        pass
    assert there.read_text() == "mine"


def test_a_full_disk_is_said_once(tmp_path: Path) -> None:
    refused = pytest.raises(StoreError, match=r"all\.csv: cannot write: No space left")
    with refused, requests_file(tmp_path / "all.csv") as file:
        assert file is not None
        file._file.close()
        file._file = open("/dev/full", "w")  # noqa: SIM115 - what it holds goes nowhere at its end
        file.append(KEY, Told())


def test_what_did_not_fit_does_not_come_behind_the_cut(tmp_path: Path) -> None:
    """With room again, as on a disk that was full, when the file is closed."""
    path = tmp_path / "all.csv"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with requests_file(path) as file:
        assert file is not None
        file.append(KEY, Told())
        whole = path.read_bytes()
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 20, hard))
        try:
            with pytest.raises(StoreError, match="cannot write"):
                file.append(KEY, Told())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == whole
