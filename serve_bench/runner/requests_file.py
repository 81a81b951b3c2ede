"""A file of every request of a run, a line each (CSV), written row by row after its load has ended.

Rule: nothing is written while a load runs, and a file that is there already is never touched.
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
    _whole: int = 0  # bytes up to the end of the last trial that was written whole

    def append(self, key: str, log: RequestLog) -> None:
        """The requests of a trial. StoreError when they cannot be written whole."""
        try:
            csv.writer(self._file, lineterminator="\n").writerows(
                (
                    key,
                    one.client,
                    f"{one.start_ns / 1e9:.6f}",
                    "" if one.latency_ns is None else f"{one.latency_ns / 1e6:.3f}",
                    one.status or "",
                    one.error or "",
                )
                for one in log.rows()
            )
            self.flush()
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file.fileno(), self._whole)
            self._drop_buffered()
            why = error.strerror or str(error)
            raise StoreError(f"{self.path}: cannot write: {why}") from None

    def _drop_buffered(self) -> None:
        """What is still in the buffers must not come behind the cut when there is room again."""
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._file.fileno())
        os.close(null)

    def flush(self) -> None:
        """What was written stands in the file. Raises OSError."""
        self._file.flush()
        self._whole = os.fstat(self._file.fileno()).st_size


@contextmanager
def requests_file(path: Path | None) -> Iterator[RequestsFile | None]:
    """A new file; None without a path. Raises StoreError when it cannot be made."""
    if path is None:
        yield None
        return
    try:
        file = path.open("x", encoding="ascii")
    except OSError as error:
        raise StoreError(f"--log-requests: {path}: {error.strerror or error}") from None
    made = RequestsFile(path, file)
    try:
        with suppress(OSError):  # the first trial will say so
            file.write(HEADER)
            made.flush()
        yield made
    finally:
        # On a full disk what is buffered fails once more here: that was said already.
        with suppress(OSError):
            file.close()
