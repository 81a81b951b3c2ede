"""Commands with typed options.

A command declares its options as a subclass of `Options`: fields with a `flag` or an `argument`,
most of them inherited from the groups in options.py. `order` names its parameters as `--help` shows
them. A name in it that is no field is a flag of the registry of axes (core/axes.py). An axis that
the registry gives to the command needs no mention: its flag follows the last one that is listed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    NamedTuple,
    Self,
    TypeVar,
    dataclass_transform,
)

import typer

from serve_bench.cli.completion import completion_of
from serve_bench.cli.panels import PANELS, PanelCommand, shape
from serve_bench.core.axes import AxisFlag, axis_flags, suggest
from serve_bench.core.errors import BadInput
from serve_bench.core.numbers import written
from serve_bench.core.redaction import hide_option
from serve_bench.spec.base import Option, Spec

_REQUIRED: Any = inspect.Parameter.empty


class Parameter(NamedTuple):
    """A parameter of a command. `spellings`: of the flag, where it is not just that of its name;
    `named`: by a flag, and not by its place. `takes`: the words that it may be, or the least and
    the largest number. A default that is not decided here stands in `help`, as `[10]`."""

    default: Any
    help: str | None
    spellings: tuple[str, ...] = ()
    metavar: str | None = None
    named: bool = True
    takes: Sequence[Any] = ()

    @classmethod
    def of_axis(cls, one: AxisFlag) -> Parameter:
        """The flag of an axis; one that takes no value says yes."""
        names = (one.name, *one.axis.spellings) if one.flag.name is None else ()
        spellings = tuple(map(_spelt, names)) if len(names) > 1 else ()
        if one.switch:
            return cls(False, one.flag.help, spellings)
        help = show_default(one.flag.help, one.usual)
        return cls(None, help, spellings, one.shape, takes=one.takes)

    @classmethod
    def of_option(cls, option: Option) -> Parameter:
        """The flag of an option of a Spec."""
        names = (option.flag, *option.opt.spellings) if option.opt.spellings else ()
        return cls(None, option.help, names, option.shape)

    def signature(self, name: str, kind: Any) -> inspect.Parameter:
        """The parameter as typer reads it. `kind`: its type."""
        words = tuple(word for word in self.takes if isinstance(word, str))
        complete = completion_of(name, words)
        help = self.help and show_default(self.help, self.default)
        info = typer.Argument(
            help=help, metavar=self.metavar, show_default=False, autocompletion=complete
        )
        if self.named:
            names = self.spellings or ((_spelt(name),) if kind is bool else ())
            info = typer.Option(
                *names,
                help=help,
                metavar=self.metavar or shape(name, kind),
                rich_help_panel=PANELS.get(name),
                show_default=False,
                autocompletion=complete,
            )
        annotation = Annotated[kind, info] if self.help is not None else kind
        place = inspect.Parameter.KEYWORD_ONLY
        return inspect.Parameter(name, place, default=self.default, annotation=annotation)

    def spelling(self, name: str) -> str:
        """As a message names it: the first long spelling of a flag, an argument in capitals."""
        long = next((one for one in self.spellings if one.startswith("--")), _spelt(name))
        return long.partition("/")[0] if self.named else name.upper()

    def check(self, name: str, value: object) -> None:
        """BadInput on what it does not take; an empty text would count as left out."""
        allowed, shown = "", repr(value)
        if value == "" and name not in MAY_BE_EMPTY:
            allowed = "a value"
        elif self.named and isinstance(value, Path) and str(value).startswith("--"):
            allowed, shown = f"a path (./{value} for one of that name)", repr(str(value))
        elif self.takes and isinstance(value, str) and value not in self.takes:
            allowed = ", ".join(self.takes) + suggest(value, self.takes)
        elif self.takes and type(value) in (int, float):
            (least, most) = self.takes
            shown = str(value) if isinstance(value, int) else f"{value:g}"
            allowed = "" if least <= value <= most else f"{written(least)} to {written(most)}"
        if allowed and value != self.default:
            raise BadInput(f"{self.spelling(name)}: {shown} is not allowed; it takes {allowed}")


MAY_BE_EMPTY: Final = ("body", "expect_body", "chart")

MOST: Final = 1_000_000
"""Upper end of a number, unless its flag has another."""


def flag(
    default: Any,
    help: str | None = None,
    *spellings: str,
    metavar: str | None = None,
    takes: Sequence[Any] = (),
) -> Any:
    """A field that a flag sets; without `help`, that of the class above with another default."""
    return Parameter(default, help, spellings, metavar, takes=takes)


def argument(help: str, default: Any = _REQUIRED, metavar: str | None = None) -> Any:
    """A field that a word of the command line sets by its place."""
    return Parameter(default, help, (), metavar, named=False)


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Options:
    """The options of one call of a command. Fields cannot be changed.

    `texts`: of the flags of axes that are set, or have a default, by parameter.
    """

    command: ClassVar[str] = ""
    """Whose flags of axes it has."""
    spec: ClassVar[type[Spec] | None] = None
    """What it is asked to measure, where that makes its flags."""
    order: ClassVar[str] = ""

    texts: Mapping[str, str] = {}  # a field, which nothing changes

    def __init__(self, **values: Any) -> None:
        flags = self.flags()
        for name, value in values.items():  # known before anything is refused in words
            for word in value if isinstance(value, list) else [value]:
                hide_option(name, str(word))
        for name in values.keys() & flags.keys():
            flags[name].check(name, values[name])
        self.__dict__.update({name: one.default for name, one in flags.items()} | values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: options cannot be changed")

    @classmethod
    @cache
    def flags(cls) -> Mapping[str, Parameter]:
        """The flags of all fields, those of the classes above too."""
        flags: dict[str, Parameter] = {}
        for one in reversed(cls.__mro__):
            for name, value in vars(one).items():
                if isinstance(value, Parameter):
                    above = flags.get(name, value)
                    flags[name] = value if value.help else above._replace(default=value.default)
        return flags

    @classmethod
    def text_flags(cls) -> Mapping[str, Parameter]:
        """The flags whose texts are gathered in `texts`, by parameter."""
        if cls.spec is not None:
            return {name: Parameter.of_option(opt) for name, opt in cls.spec.options().items()}
        return {name: Parameter.of_axis(one) for name, one in axis_flags(cls.command).items()}

    @classmethod
    @cache
    def parameters(cls) -> Mapping[str, inspect.Parameter]:
        """The parameters of the command in the order of its help."""
        texts, names = cls.text_flags(), cls.order.split()
        last = max((at for at, name in enumerate(names, 1) if name in texts), default=0)
        names[last:last] = [name for name in texts if name not in names]
        kinds: dict[str, Any] = {}
        for one in reversed(cls.__mro__):
            kinds |= _annotations(one)
        flags = cls.flags()
        return {
            name: texts[name].signature(name, bool if texts[name].default is False else str | None)
            if name in texts
            else flags.get(name, Parameter(_REQUIRED, None)).signature(name, kinds[name])
            for name in names
        }

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The options from the values of all parameters."""
        names = cls.text_flags()
        texts = {
            name: "true" if value is True else value
            for name, value in values.items()
            if name in names and value is not None and value is not False
        }
        fields = {name: value for name, value in values.items() if name not in names}
        return cls(**fields, texts=texts)

    def changed(self, but: Collection[str] = ()) -> list[str]:
        """The parameters with another value than their default, as `--help` spells them; without
        those in `but`."""
        texts, fields = self.text_flags(), self.flags()
        values = {name: self.texts.get(name) for name in texts} | self.__dict__
        return [
            fields.get(name, Parameter(None, None)).spelling(name)
            for name, one in self.parameters().items()
            if name not in but
            and one.default is not _REQUIRED
            and values[name] not in (one.default, None, [])
        ]


O = TypeVar("O", bound=Options)  # noqa: E741


class Command(Generic[O]):
    """A function of typed options as typer takes it: with a signature, a name and a docstring.
    `parser` reads its command line."""

    def __init__(
        self,
        options: type[O],
        function: Callable[[O], int | None],
        parser: type[PanelCommand] = PanelCommand,
    ) -> None:
        self._options, self._function = options, function
        self.parser = parser
        parameters = options.parameters()
        self.__signature__ = inspect.Signature(list(parameters.values()))
        self.__annotations__ = {name: one.annotation for name, one in parameters.items()}
        self.__name__, self.__doc__ = function.__name__, function.__doc__

    def __call__(self, **values: Any) -> int | None:
        """Runs the command; the exit code."""
        try:
            return self._function(self._options.of(values))
        except KeyboardInterrupt:  # of which typer would end without a word
            raise typer.Abort from None


def command(
    options: type[O], parser: type[PanelCommand] = PanelCommand
) -> Callable[[Callable[[O], int | None]], Command[O]]:
    """Makes a command of a function of these options."""
    return lambda function: Command(options, function, parser)


@cache
def _annotations(kind: type) -> dict[str, Any]:
    """The annotations of a class alone, without those that it inherits."""
    return inspect.get_annotations(kind, eval_str=True) if kind is not Options else {}


def _spelt(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def show_default(help: str, default: object) -> str:
    """`Form: table or json [table].`: the help with a default that is worth a word at its end."""
    if default is _REQUIRED or default in (None, False, ""):
        return help
    word = f"{default:g}" if isinstance(default, float) else str(default)
    return f"{help.removesuffix('.')} [{word}]."
