"""A CSV file with a line for every request of a run.

Rule: nothing is written while a load runs, and an existing file is never touched.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from serve_bench.load.request_log import RequestLog
from serve_bench.store import StoreError

HEADER: Final = "trial,client,start_s,latency_ms,status,error\n"


@dataclass
class RequestsFile:
    """An open file; `append` adds the requests of one trial."""

    path: Path
    _file: TextIO
    _whole: int = 0  # bytes of the trials that were written completely

    def append(self, key: str, log: RequestLog) -> None:
        """Write the requests of a trial. Raises StoreError, and leaves no part of them."""
        try:
            csv.writer(self._file, lineterminator="\n").writerows(
                (
                    key,
                    row.client,
                    f"{row.start_ns / 1e9:.6f}",
                    "" if row.latency_ns is None else f"{row.latency_ns / 1e6:.3f}",
                    row.status or "",
                    row.error or "",
                )
                for row in log.rows()
            )
            self.flush()
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file.fileno(), self._whole)
            # Bytes that are buffered must not follow the cut when the disk has room again.
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._file.fileno())
            os.close(null)
            why = error.strerror or str(error)
            raise StoreError(f"{self.path}: cannot write: {why}") from None

    def flush(self) -> None:
        """Write the buffers to the file. Raises OSError."""
        self._file.flush()
        self._whole = os.fstat(self._file.fileno()).st_size


@contextmanager
def requests_file(path: Path | None) -> Iterator[RequestsFile | None]:
    """Create a new file; None without a path. Raises StoreError if that fails."""
    if path is None:
        yield None
        return
    try:
        file = path.open("x", encoding="ascii")
    except OSError as error:
        raise StoreError(f"--log-requests: {path}: {error.strerror or error}") from None
    made = RequestsFile(path, file)
    try:
        with suppress(OSError):  # the first trial will report it
            file.write(HEADER)
            made.flush()
        yield made
    finally:
        # On a full disk the buffered bytes fail once more here. That was reported already.
        with suppress(OSError):
            file.close()
