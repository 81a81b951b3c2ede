"""A service that is up already: nothing of it is started or ended.

Rule: the record of its load is of the same kind as that of our own cluster, so that every report
can read it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import structs

from serve_bench.core.facts import LoadFacts, RequestFacts
from serve_bench.core.load_spec import Load, LoadShape
from serve_bench.core.marks import ProcessMarks
from serve_bench.core.plan import Cell, Suite, load_with
from serve_bench.core.request_spec import Request
from serve_bench.core.result import Trial
from serve_bench.core.spec import take_fields
from serve_bench.core.traffic import Row
from serve_bench.core.usage import ReplicaCounts
from serve_bench.observing.processes import ServeProcess, behind, is_here
from serve_bench.runner.traced import marks_folder
from serve_bench.serving.server import read_marks


@dataclass(frozen=True)
class Service:
    """A running service. What of it has ended, and what its app counts, is unknown."""

    name: str
    request: Request
    from_nodes: bool = False  # of several nodes, this host sees only a part of the processes

    @property
    def remote(self) -> bool:
        """Whether it is on another machine, whose processes are not seen."""
        return not is_here(urlsplit(self.request.url).hostname or "")

    def load_of(self, suite: Suite, row: Row, cell: Cell) -> Load:
        """Return the load of a row; all cells of a service are the same."""
        return load_with(self.request, suite, row)

    def processes(self) -> list[ServeProcess]:
        """List the processes of the Serve on this host that answers the URL."""
        if self.from_nodes:
            return []
        return behind(self.request.url, self.request.unix_socket)

    # What cannot be seen of it is empty.
    alive = staticmethod(lambda: True)
    broken = staticmethod(lambda: None)
    casualties = replicas = staticmethod(list[Any])
    counts = forward_ns = staticmethod(dict[int, ReplicaCounts])

    @cached_property
    def marks_folder(self) -> Path | None:
        """Where the Serve there keeps the marks of traced requests; None where it makes none."""
        return next(filter(None, (marks_folder(process.pid) for process in self.processes())), None)

    def marks(self) -> list[ProcessMarks]:
        return [] if self.marks_folder is None else read_marks(self.marks_folder)


def add_request(trial: Trial, load: Load) -> Trial:
    """Add to the trial what its load requests of a service that was up already."""
    request = RequestFacts(
        url=load.request.url,
        method=", ".join(dict.fromkeys(load.request.methods)) or load.request.method,
        paths=len(load.request.paths),
        header_sets=len(load.request.header_sets),
    )
    asked = LoadFacts(request=request, **take_fields(LoadShape, load))
    return replace(trial, client=structs.replace(trial.client, asked=asked))
