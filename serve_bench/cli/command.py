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
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Self, dataclass_transform

import typer

from serve_bench.cli import find
from serve_bench.cli.completion import completion_of
from serve_bench.cli.panels import PANELS, PanelCommand, shape
from serve_bench.core.axes import AxisFlag, axis_flags
from serve_bench.core.numbers import written
from serve_bench.core.redaction import hide_option
from serve_bench.spec.base import OPT, Opt, Option, Spec

MOST: Final = 1_000_000
"""Upper end of a number, unless its flag has another."""


def flag(
    default: Any,
    help: str | None = None,
    *spellings: str,
    metavar: str | None = None,
    takes: Sequence[Any] = (),
) -> Any:
    """A field that a flag sets. Without `help` it is that of the class above with another default.
    `takes`: the words that it may be, or the least and the largest number. A default that is not
    decided here stands in `help`, as `[10]`."""
    if help is None:
        return field(default=default)
    words = tuple(word for word in takes if isinstance(word, str))
    bounds = (takes[0], takes[1]) if takes and not words else None
    opt = Opt(help.removesuffix("."), metavar, spellings, words=words, bounds=bounds)
    return field(default=default, metadata={OPT: opt})


def argument(help: str, default: Any = MISSING, metavar: str | None = None) -> Any:
    """A field that a word of the command line sets by its place."""
    return field(default=default, metadata={OPT: Opt(help.removesuffix("."), metavar, named=False)})


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclass(frozen=True, kw_only=True)
class Options(Spec):
    """The options of one call of a command. Fields cannot be changed.

    `command`: whose flags of axes it has; `spec`: what it is asked to measure, where that makes its
    flags. `specs`: whose options it has that `order` names. `texts`: of the flags that are no
    fields and are set, by parameter; of one that may be repeated all.
    """

    command: ClassVar[str] = ""
    spec: ClassVar[type[Spec] | None] = None
    specs: ClassVar[Sequence[type[Spec]]] = ()
    order: ClassVar[str] = ""

    texts: Mapping[str, Any] = field(default_factory=dict)

    def __init_subclass__(cls) -> None:
        # `--help` makes many of these classes, and most of its time would be their functions'.
        dataclass(init=False, repr=False, eq=False, frozen=True, kw_only=True)(cls)

    def __init__(self, **values: Any) -> None:
        values = {"texts": {}, **values}
        for known in fields(self):
            object.__setattr__(self, known.name, values.get(known.name, known.default))

    @classmethod
    def text_options(cls) -> Mapping[str, Option]:
        """The options whose texts are gathered in `texts`, by parameter."""
        of_kind = axis_options(cls.command) if cls.spec is None else cls.spec.options()
        declared = {name: known for spec in cls.specs for name, known in spec.options().items()}
        names = [name for name in cls.order.split() if name not in cls.options()]
        named = {name: declared[name] for name in names if name in declared}
        return {**of_kind, **named}

    @classmethod
    @cache
    def parameters(cls) -> Mapping[str, Option]:
        """All options of the command, in the order of its help."""
        texts, names = cls.text_options(), cls.order.split()
        axes = [place for place, name in enumerate(names, 1) if name in axis_options(cls.command)]
        last = max(axes, default=0)
        names[last:last] = [name for name in texts if name not in names]
        known = {**cls.options(), **texts}
        return {name: known[name] for name in names if name in known}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The options from what typer gives: texts, lists of them, switches. Raises BadInput."""
        values = {name: value for name, value in values.items() if value is not None}
        for name, value in values.items():  # known before anything is refused in words
            for word in value if isinstance(value, list) else [value]:
                hide_option(name, str(word))
        texts = {
            name: "true" if value is True else value
            for name, value in values.items()
            if name in cls.text_options() and value not in (None, False, [])
        }
        typed = {
            name: cls.options()[name].read_given(value) if name in cls.options() else value
            for name, value in values.items()
            if name not in cls.text_options()
        }
        return cls(**typed, texts=texts)

    def changed(self, but: Collection[str] = ()) -> list[str]:
        """The options with another value than their default, as `--help` spells them; without
        those in `but`."""
        values = {name: self.texts.get(name) for name in self.text_options()} | self.__dict__
        return [
            option.flag
            for name, option in self.parameters().items()
            if name not in but
            and option.default is not MISSING
            and values[name] not in (option.default, None, [])
        ]


@cache
def axis_options(command: str) -> Mapping[str, Option]:
    """The flags of the axes that a command has, as options; one that takes no value says yes."""
    return {name: _option_of(flag) for name, flag in axis_flags(command).items()}


def _option_of(flag: AxisFlag) -> Option:
    names = (flag.name, *flag.axis.spellings) if flag.flag.name is None else ()
    spellings = tuple(f"--{name.replace('_', '-')}" for name in names if len(names) > 1)
    help, usual = flag.flag.help.removesuffix("."), flag.usual
    if flag.switch:
        return Option(flag.name, flag.key, Opt(help, None, spellings), bool, False, False)
    if usual != "":
        help += f" [{written(usual) if isinstance(usual, float) else usual}]"
    opt = Opt(help, flag.shape, spellings, words=flag.takes)
    return Option(flag.name, flag.key, opt, str, False, None)


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
    told = option.shape if option.opt.shape or option.is_switch else None
    usual = option.shape or ""
    if told is None and usual.partition("[")[0] in ("TEXT", "NUMBER", "PATH"):
        named = shape(option.name)
        told = f"{named}[,{named}...]" if named and option.listed else named
    return told or usual or None


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
