"""Commands with typed options.

A command declares its options as a Spec (spec/base.py), whose docstring is its help: fields with a
`flag` or an `argument`, most of them inherited from the groups in options.py. `order` names its
parameters as `--help` shows them. A name in it that is no field is a flag of the registry of axes
(core/axes.py). An axis that the registry gives to the command needs no mention: its flag follows
the last one that is listed.

Rule: options stand in light files, apart from what runs them. That is imported when the command is
called, by `find`, so that `--help` does not wait for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Self, dataclass_transform

import typer

from serve_bench.cli import find
from serve_bench.cli.completion import completion_of
from serve_bench.cli.panels import PANELS, PanelCommand, shape
from serve_bench.core.redaction import hide_option
from serve_bench.spec.axes import axis_options
from serve_bench.spec.base import OPT, Opt, Option, Spec

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
) -> Any:
    """A field that a flag sets. Without `help` it is that of the class above with another default.
    `takes`: the words that it may be, or the least and the largest number. A default that is not
    decided here stands in `help`, as `[10]`. `launched`, `resume`: of Opt."""
    if help is None:
        return field(default=default)
    words = tuple(word for word in takes if isinstance(word, str))
    bounds = (takes[0], takes[1]) if takes and not words else None
    help = help.removesuffix(".")
    opt = Opt(help, metavar, spellings, words=words, bounds=bounds)
    opt = opt._replace(launched=launched, resume=resume)
    return field(default=default, metadata={OPT: opt})


def argument(
    help: str, default: Any = MISSING, metavar: str | None = None, launched: bool = False
) -> Any:
    """A field that a word of the command line sets by its place."""
    opt = Opt(help.removesuffix("."), metavar, named=False, launched=launched)
    return field(default=default, metadata={OPT: opt})


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclass(frozen=True, kw_only=True)
class Options(Spec):
    """The options of one call of a command. Fields cannot be changed.

    `command`: whose flags of axes it has; `spec`: what it is asked to measure, where that makes its
    flags. `specs`: whose options it has that `order` names. `given`: the flags that are set and are
    keys of a suite, by parameter, as the file would have them.
    """

    command: ClassVar[str] = ""
    spec: ClassVar[type[Spec] | None] = None
    specs: ClassVar[Sequence[type[Spec]]] = ()
    order: ClassVar[str] = ""

    given: Mapping[str, Any] = field(default_factory=dict)

    def __init_subclass__(cls) -> None:
        # `--help` makes many of these classes, and most of its time would be their functions'.
        dataclass(init=False, repr=False, eq=False, frozen=True, kw_only=True)(cls)

    def __init__(self, **values: Any) -> None:
        values = {"given": {}, **values}
        for known in fields(self):
            object.__setattr__(self, known.name, values.get(known.name, known.default))

    @classmethod
    def suite_options(cls) -> Mapping[str, Option]:
        """The options that are keys of a suite, by parameter."""
        of_kind = axis_options(cls.command) if cls.spec is None else cls.spec.options()
        declared = {name: known for spec in cls.specs for name, known in spec.options().items()}
        names = [name for name in cls.order.split() if name not in cls.options()]
        named = {name: declared[name] for name in names if name in declared}
        return {**of_kind, **named}

    @classmethod
    @cache
    def parameters(cls) -> Mapping[str, Option]:
        """All options of the command, in the order of its help."""
        keys, names = cls.suite_options(), cls.order.split()
        axes = [place for place, name in enumerate(names, 1) if name in axis_options(cls.command)]
        last = max(axes, default=0)
        names[last:last] = [name for name in keys if name not in names]
        known = {**cls.options(), **keys}
        return {name: known[name] for name in names if name in known}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The options from what typer gives: texts, lists of them, switches. Raises BadInput."""
        values = {name: value for name, value in values.items() if value is not None}
        for name, value in values.items():  # known before anything is refused in words
            for word in value if isinstance(value, list) else [value]:
                hide_option(name, str(word))
        options, keys = cls.options(), cls.suite_options()
        typed, given = dict[str, Any](), dict[str, Any]()
        for name, value in values.items():
            if name not in keys:
                typed[name] = options[name].read_given(value) if name in options else value
            elif value not in (False, []):
                read = keys[name].read_given(value)
                given[name] = read if isinstance(read, int | float | str | list | tuple) else value
        return cls(**typed, given=given)

    def changed(self, counts: Callable[[Option], bool] = lambda _: True) -> list[str]:
        """The options that are given, or have another value than their default, as `--help` spells
        them: those of them that count."""
        values = {**dict.fromkeys(self.suite_options()), **self.given, **vars(self)}
        return [
            option.flag
            for name, option in self.parameters().items()
            if counts(option)
            and option.default is not MISSING
            and values[name] not in (None, [])
            and (name in self.given or values[name] != option.default)
        ]


class Command:
    """Typed options as typer takes a function: with a signature, a name and a docstring. `place`:
    of the function of these options that runs the command; `parser` reads its command line."""

    def __init__(
        self, options: type[Options], place: str, parser: type[PanelCommand] = PanelCommand
    ) -> None:
        self._options, self.place, self.parser = options, place, parser
        parameters = [_parameter(option) for option in options.parameters().values()]
        if "context" in options.order.split():
            named = inspect.Parameter.KEYWORD_ONLY
            parameters.insert(0, inspect.Parameter("context", named, annotation=typer.Context))
        self.__signature__ = inspect.Signature(parameters)
        self.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        self.__name__, self.__doc__ = place, options.__doc__

    def __call__(self, **values: Any) -> Any:
        """Runs the command, unless one below it is called; the exit code."""
        options, context = self._options.of(values), values.get("context")
        if context is not None and context.invoked_subcommand is not None:
            return None
        try:
            return find(self.place)(options)
        except KeyboardInterrupt:  # of which typer would end without a word
            raise typer.Abort from None


def _shape_of(option: Option) -> str | None:
    """What its text looks like: as its type or Opt says, else as its name does in all commands."""
    text = option.shape if option.opt.shape or option.is_switch else None
    usual = option.shape or ""
    if text is None and usual.partition("[")[0] in ("TEXT", "NUMBER", "PATH"):
        named = shape(option.name)
        text = f"{named}[,{named}...]" if named and option.listed else named
    return text or usual or None


def _parameter(option: Option) -> inspect.Parameter:
    """An option as typer reads it: a switch, a text, or a list of texts."""
    name, opt = option.name, option.opt
    common: dict[str, Any] = {
        "help": option.help,
        "metavar": _shape_of(option),
        "show_default": False,
        "autocompletion": completion_of(name, option.words),
    }
    kind: Any = bool if option.is_switch else list[str] if option.repeated else str
    default: Any = option.default if option.is_switch else None
    if option.default is MISSING:
        default = inspect.Parameter.empty
    elif default is None:
        kind = kind | None
    info = typer.Argument(**common)
    if opt.named:
        names = opt.spellings or (option.flag,)
        info = typer.Option(*names, rich_help_panel=PANELS.get(name), **common)
    place = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, place, default=default, annotation=Annotated[kind, info])
