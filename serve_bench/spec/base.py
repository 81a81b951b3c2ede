"""What a command is asked to measure, declared once: fields with a type, its bounds, and an Opt.

A field makes the flag, the key of a suite file, its refusals, and what the record of a run keeps.
Rule: a value is read the same wherever it was written. Every error is one line that names the flag,
or the file and key, and what it takes. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from inspect import get_annotations
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    Self,
    Union,
    get_args,
    get_origin,
)

import msgspec
from msgspec import inspect

from serve_bench.core.axes import Form, suggest
from serve_bench.core.errors import BadInput, FormatError
from serve_bench.core.numbers import whole_number, written
from serve_bench.core.schema import built, plain
from serve_bench.core.secrets import hide
from serve_bench.spec.content import Content


class Opt(NamedTuple):
    """What a field is for the user. `help`: without its default. `shape`: what its value looks
    like, where its type does not say it; `spellings`: all of its flag, where they are not just that
    of its name. `read` makes a value of a text, or raises ValueError; `takes` is what a refusal
    says of that. `why` is added to what a refusal says. `key`: in a suite file, where it is not
    that of the field in the table of the Spec. `words`: all that it takes; `bounds`: the least and
    the largest number, where its type does not say it. `named`: by a flag, and not by its place.
    `empty`: a text is taken as it is, and may be empty. `aliases`: words that stand for others.
    `launched`: it is of a cluster that is started, and not of a service that is up already;
    `resume`: it goes with a run that goes on, too."""

    help: str
    shape: str | None = None
    spellings: tuple[str, ...] = ()
    read: Callable[[str], Any] | None = None
    takes: str | None = None
    why: str = ""
    key: str | None = None
    words: tuple[str, ...] = ()
    bounds: tuple[float, float] | None = None
    named: bool = True
    empty: bool = False
    aliases: Mapping[str, str] = MappingProxyType({})
    launched: bool = False
    resume: bool = False


@dataclass(frozen=True)
class Option:
    """A field of a Spec that the user sets. `kind`: of a value, with its bounds; `listed`: it takes
    several of them, with commas behind a flag, as a list in a file; `repeated`: a flag of one value
    may be given several times. `key`: in a suite file."""

    name: str
    key: str
    opt: Opt
    kind: Any
    listed: bool
    default: Any
    repeated: bool = False

    @property
    def flag(self) -> str:
        """As a message names it: the first long spelling, an argument in capitals."""
        if not self.opt.named:
            return self.name.upper()
        usual = f"--{self.name.replace('_', '-')}"
        long = next((word for word in self.opt.spellings if word.startswith("--")), usual)
        return long.partition("/")[0]

    @property
    def help(self) -> str:
        """With the default, where there is one that is worth a word."""
        values = self.default if self.listed else [self.default]
        if self.is_switch or self.default is MISSING or self.default in (None, "", ()):
            return f"{self.opt.help}."
        form = _form_of(self.kind)
        write = written if form is None else form.write
        words = [write(value) if type(value) in (int, float) else str(value) for value in values]
        return f"{self.opt.help} [{','.join(words)}]."

    @property
    def reader(self) -> Callable[[str], Any] | None:
        """What makes a value of a text; None where its type alone does."""
        form = _form_of(self.kind)
        return self.opt.read or (form.read if form is not None else None)

    @property
    def is_switch(self) -> bool:
        """Whether its flag takes no value: given, it says yes."""
        return self.kind is bool and self.opt.shape is None and self.reader is None

    @property
    def shape(self) -> str | None:
        """What its text looks like: `N[,N...]`, `WORD`; None of a switch."""
        kind, form = _of_value(inspect.type_info(self.kind)), _form_of(self.kind)
        if self.is_switch:
            return None
        value = self.opt.shape or (form.shape if form else _SHAPES.get(type(kind), "TEXT"))
        return f"{value}[,{value}...]" if self.listed else value

    @property
    def words(self) -> tuple[str, ...]:
        """All words that it takes."""
        kind, form = _without_none(self.kind), _form_of(self.kind)
        if get_origin(kind) is Literal:
            return (*get_args(kind), *self.opt.aliases)
        return self.opt.words or (form.words if form is not None else ())

    @property
    def takes(self) -> str:
        """What a refusal says of its values."""
        form = _form_of(self.kind)
        words = () if form is not None and form.words else self.words
        return (self.opt.takes or _describe(self.kind, words)) + self.opt.why

    def read_given(self, value: Any) -> Any:
        """The value of what its flag was given: a text, a list of them, or yes or no."""
        if value == []:
            return self.default
        return value if isinstance(value, bool) else self.read(value, self.flag)

    def read(self, value: Any, place: str) -> Any:
        """The value of a text behind a flag, or of what a file has at `place`. Raises BadInput."""
        if self.repeated:
            given = value if isinstance(value, list) and value else [value]
            return [self._read_value(text, place) for text in given]
        if not self.listed:
            return self._read_value(value, place)
        text = self.opt.aliases.get(value, value) if isinstance(value, str) else value
        parts = text.split(",") if isinstance(text, str) else text
        values: list[Any] = []
        for part in parts if isinstance(parts, list | tuple) and parts else [value]:
            if (known := self._read_value(part, place)) in values:
                raise BadInput(f"{place}: {str(part).strip()} is given twice")
            values.append(known)
        return tuple(values)

    def _read_value(self, value: Any, place: str) -> Any:
        given = value.strip() if isinstance(value, str) and not self.opt.empty else value
        text = given
        try:
            if self.reader is not None and isinstance(text, str | int | float):
                text = self.reader(str(text))
            elif _is_whole(self.kind) and isinstance(text, str) and whole_number(text) is None:
                raise ValueError(text)  # msgspec takes 1e3
            if (text == "" and not self.opt.empty) or (
                self.opt.words and text not in self.opt.words
            ):
                raise ValueError(text)
            return msgspec.convert(
                text, self.kind, strict=not isinstance(text, str), dec_hook=_path
            )
        except (ValueError, BadInput):
            shown = hide(repr(given))
            shown = shown if len(shown) <= 32 else f"{shown[:31]}{shown[0]}"
            near = suggest(value, self.words)
            raise BadInput(
                f"{place}: {shown} is not allowed; it takes {self.takes}{near}"
            ) from None


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
    def check_keys(cls, content: Content) -> None:
        """BadInput on a key of its table that is none of its options."""
        above = f"{cls.table}."
        keys = [option.key for option in cls.options().values()]
        below = [key.removeprefix(above) for key in keys if key.startswith(above)]
        content.check_keys(below, cls.table)

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


OPT: Final = "opt"
"""In the metadata of a field: its Opt, where that is no part of its type."""


@cache
def _options(kind: Any) -> Mapping[str, Option]:
    """The options of a Spec. A field that is declared anew without an Opt keeps that of the class
    above: it has another default."""
    hints, opts = dict[str, Any](), dict[str, Opt]()
    for base in reversed(kind.__mro__):
        its_fields = vars(base).get("__dataclass_fields__", {})
        for name, hint in get_annotations(base, eval_str=True).items():
            opt = its_fields[name].metadata.get(OPT) if name in its_fields else None
            opt = opt or next((meta for meta in _metas_of(hint) if isinstance(meta, Opt)), None)
            if opt is not None or name not in opts:
                hints[name] = hint
            opts |= {} if opt is None else {name: opt}
    options = dict[str, Option]()
    for field in fields(kind):
        if (opt := opts.get(field.name)) is None:
            continue
        value_type, metas = hints[field.name], _metas_of(hints[field.name])
        value_type = get_args(value_type)[0] if metas else value_type
        inner = _without_none(value_type)
        listed, repeated = get_origin(inner) is tuple, get_origin(inner) is list
        value_type = get_args(inner)[0] if listed or repeated else value_type
        kept = [meta for meta in metas if isinstance(meta, msgspec.Meta | Form)]
        if opt.bounds is not None:
            kept.append(msgspec.Meta(ge=opt.bounds[0], le=opt.bounds[1]))
            value_type = _without_none(value_type)
        bounded = Annotated[(value_type, *kept)] if kept else value_type
        key = opt.key or f"{kind.table}.{field.name}".removeprefix(".")
        default = None if field.default_factory is not MISSING else field.default
        options[field.name] = Option(field.name, key, opt, bounded, listed, default, repeated)
    return options


def _metas_of(hint: Any) -> Sequence[Any]:
    return hint.__metadata__ if get_origin(hint) is Annotated else ()


def _without_none(kind: Any) -> Any:
    """The first type of a union, which is that of an option that may be left out."""
    return get_args(kind)[0] if get_origin(kind) in (Union, UnionType) else kind


def _form_of(kind: Any) -> Form | None:
    """That of a type, or of one that may be None."""
    inner = _without_none(kind)
    return next((meta for meta in get_args(inner) if isinstance(meta, Form)), None)


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


def _describe(kind: Any, words: Sequence[str] = ()) -> str:
    """What values of a type look like: `a whole number from 2 to 4,096`, `cpu or cuda`."""
    if words:
        *first, last = words
        return f"{', '.join(first)} or {last}" if first else last
    info, form = _of_value(inspect.type_info(kind)), _form_of(kind)
    if isinstance(info, inspect.BoolType):
        return "true or false"
    if isinstance(info, inspect.CustomType):
        return "a path (./--name for one that begins with --)"
    if not isinstance(info, inspect.IntType | inspect.FloatType):
        return "a text that is not empty" if form is None else form.what
    whole = isinstance(info, inspect.IntType)
    what, example = ("a whole number" if whole else "a number"), ""
    write: Callable[[Any], str] = _write
    if form is not None:
        what, write, example = form.what, form.write, form.example
    if info.ge is not None:
        what += f" from {write(info.ge)}"
    elif info.gt is not None:
        what += f" above {write(info.gt)}" + (" and up" if info.le is not None else "")
    return what + ("" if info.le is None else f" to {write(info.le)}") + example


def _path(kind: type, value: Any) -> Any:
    """For msgspec, which knows no paths. A flag is not taken for one."""
    if kind is not Path or not isinstance(value, str) or value.startswith("--"):
        raise ValueError(value)
    return Path(value)


def _write(bound: float) -> str:
    return f"{int(bound):,}" if bound == int(bound) else f"{bound:g}"
