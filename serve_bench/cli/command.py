"""Commands with typed options.

A command declares its options as a subclass of `Options`: annotated fields with their defaults,
most of them inherited from the groups in options.py. `order` lists its parameters as `--help` shows
them. A name in it that is no field is a flag of the registry of axes (core/axes.py). An axis that
the registry gives to the command needs no mention: its flag follows the last one that is listed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, Self, TypeVar, dataclass_transform

import typer

from serve_bench.core.axes import AxisFlag, axis_flags


class TextFlag(NamedTuple):
    """A flag that takes text, to be read elsewhere. `spellings`: of the flag, where there are
    several; `switch`: it takes no value."""

    help: str
    default: str | None = None
    spellings: tuple[str, ...] = ()
    switch: bool = False

    @classmethod
    def of_axis(cls, name: str, one: AxisFlag) -> TextFlag:
        """The flag of an axis; `name`: of its parameter."""
        spellings = one.axis.spellings if one.flag.name is None else ()
        names = tuple(_spelt(each) for each in (name, *spellings)) if spellings else ()
        return cls(one.flag.help, one.flag.default, names, one.switch)

    def parameter(self, name: str) -> inspect.Parameter:
        """The parameter of a command."""
        names = self.spellings or ((_spelt(name),) if self.switch else ())
        kind: Any = bool if self.switch else str | None
        annotation = Annotated[kind, typer.Option(*names, help=self.help)]
        return _parameter(name, annotation, False if self.switch else self.default)


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Options:
    """The options of a command as they were given. Fields cannot be changed.

    `texts`: those of its flags of axes that were given, or have a default, by parameter.
    """

    command: ClassVar[str] = ""
    """Whose flags of axes it has."""
    order: ClassVar[tuple[str, ...]] = ()

    texts: Mapping[str, str] = {}  # a field, which nothing changes

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: options cannot be changed")

    @classmethod
    def text_flags(cls) -> Mapping[str, TextFlag]:
        """The flags whose texts are gathered in `texts`, by parameter."""
        return {name: TextFlag.of_axis(name, one) for name, one in axis_flags(cls.command).items()}

    @classmethod
    @cache
    def parameters(cls) -> Mapping[str, inspect.Parameter]:
        """The parameters of the command in the order of its help."""
        flags, names = cls.text_flags(), list(cls.order)
        last = max((at for at, name in enumerate(names, 1) if name in flags), default=0)
        names[last:last] = [name for name in flags if name not in names]
        annotations: dict[str, Any] = {}
        for one in reversed(cls.__mro__):
            annotations |= _annotations(one)
        return {
            name: flags[name].parameter(name)
            if name in flags
            else _parameter(name, annotations[name], getattr(cls, name, inspect.Parameter.empty))
            for name in names
        }

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """The options from the values of all parameters."""
        flags = cls.text_flags()
        texts = {
            name: "true" if value is True else value
            for name, value in given.items()
            if name in flags and value is not None and value is not False
        }
        fields = {name: value for name, value in given.items() if name not in flags}
        return cls(**fields, texts=texts)

    def given(self, but: Collection[str] = ()) -> list[str]:
        """The flags with another value than their default, as they are spelt; without those in
        `but`."""
        flags = self.text_flags()
        return [
            _spelt(name)
            for name, one in self.parameters().items()
            if name not in but
            and one.default is not inspect.Parameter.empty
            and (
                self.texts.get(name, one.default) != one.default
                if name in flags
                else getattr(self, name) not in (one.default, None, [])
            )
        ]


O = TypeVar("O", bound=Options)  # noqa: E741


class Command(Generic[O]):
    """A function of typed options as typer takes it: with a signature, a name and a docstring."""

    def __init__(self, options: type[O], function: Callable[[O], int | None]) -> None:
        self._options, self._function = options, function
        parameters = options.parameters()
        self.__signature__ = inspect.Signature(list(parameters.values()))
        self.__annotations__ = {name: one.annotation for name, one in parameters.items()}
        self.__name__, self.__doc__ = function.__name__, function.__doc__

    def __call__(self, **given: Any) -> int | None:
        """Runs the command; the exit code."""
        return self._function(self._options.of(given))


def command(options: type[O]) -> Callable[[Callable[[O], int | None]], Command[O]]:
    """Makes a command of a function of these options."""
    return lambda function: Command(options, function)


@cache
def _annotations(kind: type) -> dict[str, Any]:
    """The annotations of a class alone, without those that it inherits."""
    return inspect.get_annotations(kind, eval_str=True) if kind is not Options else {}


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _spelt(name: str) -> str:
    return f"--{name.replace('_', '-')}"
