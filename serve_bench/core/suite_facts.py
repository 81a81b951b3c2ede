"""What readers use of a run's suite, as its record holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from serve_bench.core.facts import RecordPart
from serve_bench.core.load_spec import LoadOn
from serve_bench.core.numbers import Amount, Count, Share
from serve_bench.core.traffic import Row


@dataclass(frozen=True)
class VariantUsed:
    """How a cluster was started. `python` is None for the interpreter of the tool itself."""

    name: str
    env: Mapping[str, str] = field(default_factory=dict)
    http_options: Mapping[str, Any] = field(default_factory=dict)
    python: str | None = None


class NamedPart(RecordPart, frozen=True):
    """A deployment, of which only the name is read."""

    name: str


class AppFacts(RecordPart, frozen=True):
    """An app of the user's own: `own_app.OwnApp` as an object."""

    target: str
    folder: str = ""
    deployments: tuple[NamedPart, ...] = ()
    config: Mapping[str, Any] = {}


class AppOfSuite(RecordPart, frozen=True):
    """What has an app: a suite, or a side of `versus`."""

    app: str | AppFacts = ""

    @property
    def target(self) -> str:
        """The app by its name, or as it was named."""
        return self.app if isinstance(self.app, str) else self.app.target


class SideFacts(AppOfSuite, frozen=True, kw_only=True):
    """A side of `versus`."""

    label: str
    variant: VariantUsed
    settings: Mapping[str, Any] = {}


def side_letters(count: int) -> tuple[str, ...]:
    """Name the sides in a table: A, and B or B1, B2 and so on."""
    return ("A", "B") if count == 2 else ("A", *(f"B{number}" for number in range(1, count)))


def split_turns(count: int, together: int | None) -> tuple[tuple[int, ...], ...]:
    """Split the sides into sets that are up in a round: A, with others up to `together` sides.

    Sides are given by their places; rounds take the sets in turn. None: all are up at once."""
    first, others = tuple(range(count))[:1], tuple(range(1, count))
    step = (together or max(2, count)) - 1
    starts = range(0, max(1, len(others)), step)
    return tuple(first + others[start : start + step] for start in starts)


class SuiteFacts(AppOfSuite, frozen=True):
    """What readers use of a run's suite. Which fields there are depends on the command.

    To resume a run, its own kind of suite is read; `Run.part` reads what one kind has."""

    name: str = ""
    variants: tuple[VariantUsed, ...] = ()
    cells: tuple[Mapping[str, Any], ...] = ()
    rows: tuple[Row, ...] = ()
    windows: Count | None = None
    window_s: Amount | None = None
    launches: Count = 0
    urls: Mapping[str, str] | None = None
    sides: tuple[SideFacts, ...] = ()
    together: Count | None = None
    load_on: LoadOn | None = None
    address: str | None = None
    master_addr: str | None = None
    output_file_path: str | None = None
    slo: str | None = None
    rounds: Count = 0
    looks: bool = False
    aa: bool = False
    threshold: Share = 0
    gate: tuple[str, ...] = ()
    floors: Mapping[str, Amount] = {}
    noise: str | None = None
    warmup_min_s: Amount | None = None
    warmup_max_s: Amount | None = None
    timeout_s: Amount = 0
    max_row_s: Amount = 0
    x_axis: str = "world_size"
    workload: str = "unknown"

    @property
    def front(self) -> str | None:
        """The ingress of an app of the user's own, `app:Ingress` where the suite names the app."""
        if isinstance(self.app, str) or not self.app.deployments:
            return None
        ingress, name = self.app.deployments[-1].name, self.app.config.get("name")
        return ingress if name is None else f"{name}:{ingress}"
