"""What `serve-bench profile` records with py-spy: a recipe of profiles/, flags over it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta

from serve_bench.core.content import Content
from serve_bench.core.forms import Time
from serve_bench.core.spec import Opt, Spec

Role: TypeAlias = Literal["proxy", "replica", "controller", "all"]

ABOUT: Final = ("what", "why")
"""Keys of a recipe that are for people."""


@dataclass(frozen=True, kw_only=True)
class ProfileSpec(Spec):
    """Whose stacks are sampled, how long and how."""

    target: Annotated[
        Role | None, Opt("Roles: proxy, replica, controller or all", "ROLE[,ROLE...]")
    ] = None
    duration: Annotated[Annotated[Time, Meta(ge=0.1, le=3600)], Opt("How long to record")] = 30.0
    rate: Annotated[int, Meta(ge=1, le=1000), Opt("Samples a second")] = 100
    native: Annotated[bool, Opt("Show frames of C and C++ too")] = False
    gil: Annotated[bool, Opt("Count threads that hold the GIL alone")] = False
    idle: Annotated[bool, Opt("Count threads that wait, too")] = False


def read_profile(content: Content) -> ProfileSpec:
    """Read a recipe and the flags over it. Raises BadInput that names the flag, or the key."""
    content.check_keys([*ABOUT, *ProfileSpec.options()])
    return ProfileSpec.read(content)
