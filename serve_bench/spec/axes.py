"""The axes of core/axes.py as options: what flags and keys of suites say of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from serve_bench.core.axes import AXES, Axis, nearest
from serve_bench.core.errors import BadInput
from serve_bench.core.spec import Opt, Option


@cache
def axis_options(command: str) -> Mapping[str, Option]:
    """Return a command's flags of axes, by their parameters."""
    options: dict[str, Option] = {}
    for axis in AXES.values():
        for flag in (flag for flag in axis.flags if command in flag.commands):
            names = (axis.name, *axis.spellings) if axis.spellings and flag.name is None else ()
            opt = Opt(
                flag.help.removesuffix("."),
                spellings=tuple(f"--{name.replace('_', '-')}" for name in names),
                aliases=flag.aliases,
                launched=axis.name != "protocol",  # the others set an app that comes with the tool
            )
            table = "load" if axis.scope == "load" else "matrix" if flag.swept else "cell"
            usual = axis.default if flag.usual is None else flag.usual
            default = None if usual == "" else (usual,) if flag.swept else usual
            name, key = flag.name or axis.name, f"{table}.{axis.name}"
            options[name] = Option(name, key, opt, axis.kind, flag.swept, default)
    return options


def axis_named(name: str, where: str) -> Axis:
    """Return the axis of that name; `_` and `-` are alike. BadInput names the nearest."""
    axis = AXES.get(name.replace("-", "_"))
    if axis is None:
        raise BadInput(f"{where}: unknown key {name!r}{nearest(name, AXES)}")
    return axis
