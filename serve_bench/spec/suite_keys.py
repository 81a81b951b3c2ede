"""The keys of a suite that are flags, too: its variants, its rows and its numbers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Self, TypeAlias

from msgspec import Meta

from serve_bench.core.errors import BadInput
from serve_bench.core.forms import RowText, Step, Time
from serve_bench.core.load_spec import MAX_DURATION_S, MAX_TIMEOUT_S, Events
from serve_bench.core.numbers import MOST_LAUNCHES
from serve_bench.core.spec import Opt, Spec

Number: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000)]
Seconds: TypeAlias = Annotated[Time, Meta(ge=0, le=86_400)]
TimeOut: TypeAlias = Annotated[Time, Meta(ge=0.001, le=MAX_TIMEOUT_S)]
WindowSeconds: TypeAlias = Annotated[Time, Meta(ge=0.01, le=MAX_DURATION_S)]


DEFAULT_CLIENTS: Final = ("raw:100",)
"""The rows of a user's app, where nothing says them: one that fills what it meets."""


@dataclass(frozen=True, kw_only=True)
class SuiteKeys(Spec):
    """The rows and numbers of a suite, and how its streams are read."""

    table: ClassVar[str] = "load"

    variant: Annotated[
        tuple[str, ...],
        Opt("Variants, as default,haproxy,optimized", "NAME", key="variant", launched=True),
    ] = ()
    launches: Annotated[
        int, Meta(ge=1, le=MOST_LAUNCHES), Opt("Launches of each variant", key="launches")
    ] = 1
    clients: Annotated[tuple[RowText, ...], Opt("N aiohttp clients, raw:N connections")] = (
        "1",
        "8",
        "raw:100",
    )
    users: Annotated[tuple[Step, ...], Opt("Numbers of users, auto or published [auto]")] = ()
    windows: Annotated[Number, Opt("Windows of each row")] = 10
    window_seconds: Annotated[WindowSeconds, Opt("Length of a window")] = 1.0
    warmup_seconds: Annotated[Seconds, Opt("Shortest warm-up")] = 0.5
    warmup_max_seconds: Annotated[Seconds, Opt("Longest warm-up")] = 3.0
    requests_per_client: Annotated[Number | None, Opt("Requests of each client")] = None
    max_row_seconds: Annotated[Time, Meta(ge=0.1, le=86_400), Opt("Longest time of a row")] = 60.0
    timeout_s: Annotated[
        TimeOut, Opt("Longest time of a request", spellings=("--timeout",), key="load.timeout")
    ] = 30.0
    events: Annotated[Events | None, Opt("Events of a stream: sse, lines or chunks [sse]")] = None
    event_timeout_s: Annotated[
        TimeOut | None,
        Opt(
            "Longest time between two events [that of the request]",
            spellings=("--event-timeout",),
            key="load.event_timeout",
        ),
    ] = None
    openai: Annotated[bool, Opt("Post chat completions, as OpenAI's API has them, as a stream")] = (
        False
    )
    quick: Annotated[bool, Opt("Measure less of everything", key="quick")] = False

    def checked(self, places: Mapping[str, str]) -> Self:
        if self.warmup_max_seconds < self.warmup_seconds:
            place = places["warmup_max_seconds"]
            raise BadInput(
                f"{place}: {self.warmup_max_seconds:g} is not allowed; it takes at least "
                f"{self.warmup_seconds:g}, the shortest warm-up"
            )
        if self.windows * self.window_seconds > MAX_DURATION_S:
            days = f"{MAX_DURATION_S / 86400:g} days"
            place = places["window_seconds"]
            raise BadInput(f"{place}: {self.windows} such windows are longer than {days}")
        return self
