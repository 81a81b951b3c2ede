"""Typed options of commands.

A command declares its options as a Spec (core/spec.py), whose docstring is its help: fields with a
`flag` or an `argument`, most of them inherited from the groups in options.py. `order` names its
parameters as `--help` shows them. A name in it that is no field is a flag of the registry of axes
(core/axes.py). An axis that the registry gives to the command needs no mention: its flag follows
the last one that is listed.

Rule: options stand in light files, apart from what runs them, which is imported when the command is
called (panels.py): `--help` does not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING as MISSING
from dataclasses import dataclass, field, fields
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Self, TypeAlias, dataclass_transform

from serve_bench.core.axes import Form
from serve_bench.core.redaction import hide_option
from serve_bench.core.spec import OPT, Opt, Option, Spec
from serve_bench.spec.axes import axis_options


def _read_path(text: str) -> Path:
    if not text or text.startswith("--"):
        raise ValueError(text)
    return Path(text)


FilePath: TypeAlias = Annotated[
    Path, Form(_read_path, "a path (./--name for one that begins with --)", "PATH", str)
]
"""A file or folder. A flag is not taken for one."""

MOST: Final = 1_000_000
"""Upper end of a number, unless its flag has another."""


def flag(
    default: Any,
    help: str | None = None,
    *spellings: str,
    metavar: str | None = None,
    takes: Sequence[Any] = (),
    launched: bool = False,
    resume: bool = False,
    named: bool = True,
) -> Any:
    """Declare a field that a flag sets; without `help` it only changes an inherited default.

    `takes`: the words that it may be, or the least and the largest number. A default that is not
    decided here stands in `help`, as `[10]`. `launched`, `resume`, `named`: of Opt."""
    if help is None:
        return field(default=default)
    words = tuple(word for word in takes if isinstance(word, str))
    bounds = (takes[0], takes[1]) if takes and not words else None
    opt = Opt(help.removesuffix("."), metavar, spellings, words=words, bounds=bounds, named=named)
    return field(default=default, metadata={OPT: opt._replace(launched=launched, resume=resume)})


argument: Final = partial(flag, named=False)
"""A field that a word of the command line sets by its place; MISSING as default: required."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclass(frozen=True, kw_only=True)
class Options(Spec):
    """The options of one call of a command. Fields cannot be changed."""

    command: ClassVar[str] = ""  # whose flags of axes it has
    spec: ClassVar[type[Spec] | None] = None  # what it measures, if that makes flags
    specs: ClassVar[Sequence[type[Spec]]] = ()  # have the options that `order` names
    order: ClassVar[str] = ""

    given: Mapping[str, Any] = field(default_factory=dict)  # flags that are set and keys of a suite

    def __init_subclass__(cls) -> None:
        # `--help` makes many of these classes, and most of its time would be their functions'.
        dataclass(init=False, repr=False, eq=False, frozen=True, kw_only=True)(cls)

    def __init__(self, **values: Any) -> None:
        values = {"given": {}, **values}
        for declared in fields(self):
            object.__setattr__(self, declared.name, values.get(declared.name, declared.default))

    @classmethod
    @cache
    def parameters(cls) -> Mapping[str, Option]:
        """Map all options of the command, in the order of its help: fields and keys of a suite."""
        options, names, axes = cls.options(), cls.order.split(), axis_options(cls.command)
        keys = {**(axes if cls.spec is None else cls.spec.options())}
        for spec in cls.specs:
            declared = spec.options()
            keys |= {name: declared[name] for name in names if name in {*declared} - {*options}}
        last = max((place for place, name in enumerate(names, 1) if name in axes), default=0)
        names[last:last] = [name for name in keys if name not in names]
        options = {**options, **keys}
        return {name: options[name] for name in names if name in options}

    @classmethod
    def flags(cls) -> dict[str, str]:
        """Map each option to what a message calls it."""
        flags = {name: option.flag for name, option in cls.parameters().items()}
        return {**flags, "streaming": "--protocol stream"}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Parse what a command line gives: texts, several of them, switches. Raises BadInput."""
        values = {name: value for name, value in values.items() if value not in (None, ())}
        for name, value in values.items():  # known before anything is refused in words
            for word in value if isinstance(value, list | tuple) else [value]:
                hide_option(name, str(word))
        own_fields = cls.options()
        typed, given = dict[str, Any](), dict[str, Any]()
        for name, option in {**cls.parameters(), **own_fields}.items():
            if (value := values.get(name)) is None:
                continue
            read = value if isinstance(value, bool) else option.read(value, option.flag)
            if name in own_fields:
                typed[name] = read
            elif value is not False:
                given[name] = read if isinstance(read, int | float | str | list | tuple) else value
        return cls(**typed, given=given)

    def changed(self, counts: Callable[[Option], bool] = lambda _: True) -> list[str]:
        """List the flags of options that are given or differ from their default, if they count."""
        values = {**self.given, **vars(self)}
        return [
            option.flag
            for name, option in self.parameters().items()
            if counts(option)
            and option.default is not MISSING
            and values.get(name) not in (None, [])
            and (name in self.given or values[name] != option.default)
        ]
