"""What a command is asked to measure, declared once: fields with a type, its bounds, and an Opt.

A field makes the flag, the key of a suite file, its refusals, and what the record of a run keeps.
Rule: a value is read the same wherever it was written. Every error is one line that names the flag,
or the file and key, and what it takes. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    Self,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import inspect

from serve_bench.core.errors import BadInput, FormatError
from serve_bench.core.numbers import whole_number, written
from serve_bench.core.schema import built, plain
from serve_bench.spec.content import Content


class Opt(NamedTuple):
    """What a field is for the user. `help`: without its default. `shape`: what its value looks
    like, where its type does not say it; `spellings`: further names of its flag. `read` makes a
    value of a text, or raises ValueError; `takes` is what a refusal says of that. `why` is added to
    what a refusal says. `key`: in a suite file, where it is not that of the field in the table of
    the Spec."""

    help: str
    shape: str | None = None
    spellings: tuple[str, ...] = ()
    read: Callable[[str], Any] | None = None
    takes: str | None = None
    why: str = ""
    key: str | None = None


@dataclass(frozen=True)
class Option:
    """A field of a Spec that the user sets. `kind`: of a value, with its bounds; `listed`: it takes
    several of them, with commas behind a flag, as a list in a file. `key`: in a suite file."""

    name: str
    key: str
    opt: Opt
    kind: Any
    listed: bool
    default: Any

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def help(self) -> str:
        """With the default, where there is one that can be written."""
        values = self.default if self.listed else [self.default]
        if values in ((), [None], [MISSING]):
            return f"{self.opt.help}."
        words = [written(value) if type(value) in (int, float) else str(value) for value in values]
        return f"{self.opt.help} [{','.join(words)}]."

    @property
    def shape(self) -> str:
        """What its text looks like: `N[,N...]`, `WORD`."""
        value = self.opt.shape or _SHAPES.get(type(_of_value(inspect.type_info(self.kind))), "TEXT")
        return f"{value}[,{value}...]" if self.listed else value

    @property
    def takes(self) -> str:
        """What a refusal says of its values."""
        return (self.opt.takes or _describe(self.kind)) + self.opt.why

    def read(self, value: Any, place: str) -> Any:
        """The value of a text behind a flag, or of what a file has at `place`. Raises BadInput."""
        if not self.listed:
            return self._read_value(value, place)
        parts = value.split(",") if isinstance(value, str) else value
        values: list[Any] = []
        for part in parts if isinstance(parts, list) and parts else [value]:
            if (known := self._read_value(part, place)) in values:
                raise BadInput(f"{place}: {str(part).strip()} stands there twice")
            values.append(known)
        return tuple(values)

    def _read_value(self, value: Any, place: str) -> Any:
        text = value.strip() if isinstance(value, str) else value
        try:
            if self.opt.read is not None and not isinstance(text, list | dict):
                text = self.opt.read(str(text))
            elif _is_whole(self.kind) and isinstance(text, str) and whole_number(text) is None:
                raise ValueError(text)  # msgspec takes 1e3
            return msgspec.convert(text, self.kind, strict=not isinstance(text, str))
        except (ValueError, BadInput):
            shown = repr(text)
            shown = shown if len(shown) <= 32 else f"{shown[:31]}{shown[0]}"
            raise BadInput(f"{place}: {shown} is not allowed; it takes {self.takes}") from None


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What a command measures. Fields without an Opt are what the command line says besides.
    `table`: of a suite file, in which its keys stand."""

    table: ClassVar[str] = ""

    @classmethod
    def options(cls) -> Mapping[str, Option]:
        """What the user can set, by field, in the order of the help."""
        kind: Any = cls  # mypy takes the hash of a dataclass for that of its class
        return _options(kind)

    @classmethod
    def read(cls, content: Content, **others: Any) -> Self:
        """What a suite file and flags say, over the defaults. `others`: fields that are no options.
        Raises BadInput."""
        values, places = {}, {}
        for name, option in cls.options().items():
            places[name] = content.where(option.key)
            if (value := content.get(option.key)) is not None:
                values[name] = option.read(value, places[name])
        return cls(**values, **others).checked(places)

    @classmethod
    def add_flags(cls, content: Content, flags: Mapping[str, Any]) -> Content:
        """The content with the flags of these options that are given, by name."""
        for name, option in cls.options().items():
            content = content.set(option.key, flags.get(name), option.flag)
        return content

    def checked(self, places: Mapping[str, str]) -> Self:
        """The same, once it is sure that its fields go together. Raises BadInput, which names the
        place of a field: a flag, or a file and key."""
        return self

    @classmethod
    def stored(cls, data: Mapping[str, Any]) -> Self:
        """That of a stored run, to go on with it. Raises BadInput."""
        try:
            return built(cls, data, "suite")
        except FormatError as error:
            raise BadInput(f"the stored suite cannot be resumed: {error}") from None

    def to_json(self) -> dict[str, Any]:
        """Plain content for the Run record."""
        return plain(self)


@cache
def _options(kind: Any) -> Mapping[str, Option]:
    hints = get_type_hints(kind, include_extras=True)
    options = {}
    for field in fields(kind):
        value_type, metas = hints[field.name], []
        if get_origin(value_type) is Annotated:
            value_type, *metas = get_args(value_type)
        opt = next((meta for meta in metas if isinstance(meta, Opt)), None)
        if opt is not None:
            listed = get_origin(value_type) is tuple
            value_type = get_args(value_type)[0] if listed else value_type
            bounds = tuple(meta for meta in metas if isinstance(meta, msgspec.Meta))
            bounded = Annotated[(value_type, *bounds)] if bounds else value_type
            key = opt.key or f"{kind.table}.{field.name}".removeprefix(".")
            options[field.name] = Option(field.name, key, opt, bounded, listed, field.default)
    return options


_SHAPES: Final[Mapping[type[inspect.Type], str]] = {
    inspect.IntType: "N",
    inspect.FloatType: "NUMBER",
    inspect.LiteralType: "WORD",
}


def _is_whole(kind: Any) -> bool:
    return isinstance(_of_value(inspect.type_info(kind)), inspect.IntType)


def _of_value(info: inspect.Type) -> inspect.Type:
    """The type without the None of an option that may be left out."""
    if isinstance(info, inspect.UnionType):
        return next(part for part in info.types if not isinstance(part, inspect.NoneType))
    return info


def _describe(kind: Any) -> str:
    """What values of a type look like: `a whole number from 2 to 4,096`, `cpu or cuda`."""
    if get_origin(kind) is Literal:
        *words, last = get_args(kind)
        return f"{', '.join(words)} or {last}" if words else str(last)
    info = _of_value(inspect.type_info(kind))
    if isinstance(info, inspect.BoolType):
        return "true or false"
    if isinstance(info, inspect.IntType | inspect.FloatType):
        what = "a whole number" if isinstance(info, inspect.IntType) else "a number"
        most = "" if info.le is None else f" to {_write(info.le)}"
        return what if info.ge is None else f"{what} from {_write(info.ge)}{most}"
    return "a text"


def _write(bound: float) -> str:
    return f"{int(bound):,}" if bound == int(bound) else f"{bound:g}"
