"""What a command measures, declared once: fields with a type, its bounds, and an Opt.

A field makes the flag, the key of a suite file, its refusals, and what the record of a run keeps.
Rule: a value is read the same wherever it was written. Every error is one line that names the flag,
or the file and key, and what it takes. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from inspect import get_annotations
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

from serve_bench.core.axes import Form, suggest
from serve_bench.core.content import Content
from serve_bench.core.errors import BadInput, FormatError
from serve_bench.core.numbers import whole_number, written
from serve_bench.core.schema import built, plain
from serve_bench.core.secrets import hide

_UNIONS: Final = (Union, UnionType)

OPT: Final = "opt"
"""In the metadata of a field: its Opt, where that is no part of its type."""


class Opt(NamedTuple):
    """What a field is for the user."""

    help: str  # without its default
    shape: str | None = None  # of its value, where the type does not say it
    spellings: tuple[str, ...] = ()  # of its flag, where not just by its name
    read: Callable[[str], Any] | None = None  # parses a text, or raises ValueError
    takes: str | None = None  # what a refusal says of that
    why: str = ""  # what a refusal adds
    key: str | None = None  # in a suite file, if not the field's in the table of the Spec
    words: tuple[str, ...] = ()  # all that it takes
    bounds: tuple[float, float] | None = None  # least and largest number, if not by its type
    named: bool = True  # by a flag, and not by its place
    empty: bool = False  # a text is taken as it is, and may be empty
    aliases: Mapping[str, str] = MappingProxyType({})  # words that stand for others
    launched: bool = False  # of a cluster that is started, not of a service
    resume: bool = False  # allowed with a resumed run


@dataclass(eq=False)
class Option:
    """A field of a Spec that the user sets.

    `flag`: as a message names it: the first long spelling, an argument in capitals. `reader` parses
    a text; None where the type alone does. `is_switch`: its flag takes no value. `words`: all that
    it takes. `shape`: what its text looks like, as `N[,N...]` or `WORD`; None of a switch. `help`:
    with the default, where that is worth a word."""

    name: str
    key: str  # in a suite file
    opt: Opt
    kind: Any  # the type of a value, with its bounds
    listed: bool  # several values: with commas behind a flag, a list in a file
    default: Any
    repeated: bool = False  # a flag of one value may be given several times

    def __post_init__(self) -> None:
        opt, default, (kind, metas) = self.opt, self.default, _take_apart(self.kind)
        self.form = form = next((meta for meta in metas if isinstance(meta, Form)), None)
        flags = (*opt.spellings, f"--{self.name.replace('_', '-')}")
        long = next(word for word in flags if word.startswith("--")).partition("/")[0]
        self.flag = long if opt.named else self.name.upper()
        self.reader = opt.read or (None if form is None else form.read)
        self.is_switch = self.kind is bool and opt.shape is None and self.reader is None
        self.is_whole = kind is int
        literal = get_origin(kind) is Literal
        self.words = opt.words or (() if form is None else form.words)
        self.words = (*get_args(kind), *opt.aliases) if literal else self.words
        usual = "WORD" if literal else {int: "N", float: "NUMBER"}.get(kind, "TEXT")
        shape = opt.shape or (usual if form is None else form.shape)
        shape = f"{shape}[,{shape}...]" if self.listed else shape
        self.shape = None if self.is_switch else shape
        self.help = f"{opt.help}."
        if not (self.is_switch or default is MISSING or default in (None, "", ())):
            write = written if form is None else form.write
            values = default if self.listed else [default]
            shown = [write(part) if type(part) in (int, float) else str(part) for part in values]
            self.help = f"{opt.help} [{','.join(shown)}]."

    @property
    def takes(self) -> str:
        """What a refusal says that the option takes."""
        words = () if self.form is not None and self.form.words else self.words
        return (self.opt.takes or _describe(self.kind, words)) + self.opt.why

    def read(self, value: Any, place: str) -> Any:
        """Parse a text behind a flag, or what a file has at `place`. Raises BadInput."""
        if self.repeated:
            given = value if isinstance(value, list | tuple) and value else [value]
            return [self._read_value(text, place) for text in given]
        if not self.listed:
            return self._read_value(value, place)
        text = self.opt.aliases.get(value, value) if isinstance(value, str) else value
        parts = text.split(",") if isinstance(text, str) else text
        values: list[Any] = []
        for part in parts if isinstance(parts, list | tuple) and parts else [value]:
            if (parsed := self._read_value(part, place)) in values:
                raise BadInput(f"{place}: {str(part).strip()} is given twice")
            values.append(parsed)
        return tuple(values)

    def _read_value(self, value: Any, place: str) -> Any:
        given = value.strip() if isinstance(value, str) and not self.opt.empty else value
        text = given
        try:
            if self.reader is not None and isinstance(text, list | dict):
                raise ValueError(text)
            if self.reader is not None and isinstance(text, str | int | float):
                text = self.reader(str(text))
            elif self.is_whole and isinstance(text, str) and whole_number(text) is None:
                raise ValueError(text)  # msgspec takes 1e3
            if (text == "" and not self.opt.empty) or (
                self.opt.words and text not in self.opt.words
            ):
                raise ValueError(text)
            return msgspec.convert(text, self.kind, strict=not isinstance(text, str))
        except BadInput as error:  # a reader says itself what is wrong
            raise BadInput(f"{place}: {error}") from None
        except ValueError:
            shown = hide(repr(given))
            shown = shown if len(shown) <= 32 else f"{shown[:31]}{shown[0]}"
            near = suggest(value, self.words)
            raise BadInput(
                f"{place}: {shown} is not allowed; it takes {self.takes}{near}"
            ) from None


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What a command measures. Fields without an Opt are what else the command line says."""

    table: ClassVar[str] = ""  # of a suite file, in which its keys stand

    @classmethod
    @cache
    def options(cls) -> Mapping[str, Option]:
        """Map each field that the user can set to its Option, in the order of the help.

        A field that is declared anew without an Opt keeps that of its base: its default differs."""
        hints, opts = dict[str, Any](), dict[str, Opt]()
        for base in reversed(cls.__mro__):
            its_fields = vars(base).get("__dataclass_fields__", {})
            for name, hint in get_annotations(base, eval_str=True).items():
                metas = getattr(hint, "__metadata__", ())  # of Annotated
                opt = its_fields[name].metadata.get(OPT) if name in its_fields else None
                opt = opt or next((meta for meta in metas if isinstance(meta, Opt)), None)
                if opt is not None or name not in opts:
                    hints[name] = (get_args(hint)[0] if metas else hint), metas
                opts |= {} if opt is None else {name: opt}
        options = dict[str, Option]()
        for field in fields(cls):
            if (opt := opts.get(field.name)) is None:
                continue
            kind, metas = hints[field.name]
            inner = get_args(kind)[0] if get_origin(kind) in _UNIONS else kind
            whole = any(isinstance(meta, Form) for meta in metas)  # of all that the text holds
            listed, repeated = get_origin(inner) is tuple and not whole, get_origin(inner) is list
            kind = get_args(inner)[0] if listed or repeated else kind
            kept = [meta for meta in metas if isinstance(meta, msgspec.Meta | Form)]
            if opt.bounds is not None:
                kept.append(msgspec.Meta(ge=opt.bounds[0], le=opt.bounds[1]))
                kind = get_args(kind)[0] if get_origin(kind) in _UNIONS else kind
            kind = Annotated[(kind, *kept)] if kept else kind
            key = opt.key or f"{cls.table}.{field.name}".removeprefix(".")
            default = None if field.default_factory is not MISSING else field.default
            options[field.name] = Option(field.name, key, opt, kind, listed, default, repeated)
        return options

    @classmethod
    def read(cls, content: Content, **others: Any) -> Self:
        """Build a Spec from a suite file and flags. `others` are no options. Raises BadInput."""
        values, places = {}, {}
        for name, option in cls.options().items():
            places[name] = content.where(option.key)
            if (value := content.get(option.key)) is not None:
                values[name] = option.read(value, places[name])
        return cls(**values, **others).checked(places)

    @classmethod
    def check_keys(cls, content: Content) -> None:
        """Raise BadInput on a key of its table that is none of its options."""
        above = f"{cls.table}."
        keys = [option.key for option in cls.options().values()]
        below = [key.removeprefix(above) for key in keys if key.startswith(above)]
        content.check_keys(below, cls.table)

    @classmethod
    def add_flags(cls, content: Content, flags: Mapping[str, Any]) -> Content:
        """Return the content with the flags that are given for these options, by name."""
        for name, option in cls.options().items():
            content = content.set(option.key, flags.get(name), option.flag)
        return content

    def checked(self, places: Mapping[str, str]) -> Self:
        """Return the Spec, once its fields are known to fit together.

        Raises BadInput, which names the place of a field: a flag, or a file and key."""
        return self

    @classmethod
    def stored(cls, data: Mapping[str, Any]) -> Self:
        """Read the Spec of a stored run, to resume it. Raises BadInput."""
        try:
            return built(cls, data, "suite")
        except FormatError as error:
            raise BadInput(f"the stored suite cannot be resumed: {error}") from None

    def to_json(self) -> dict[str, Any]:
        """Return plain content for the Run record."""
        return plain(self)


def take_fields(kind: type[Any], *items: object) -> dict[str, Any]:
    """Collect the values other than None that these objects have for the fields of a dataclass."""
    pairs = ((item, field.name) for item in items for field in fields(kind))
    values = ((name, getattr(item, name, None)) for item, name in pairs)
    return {name: value for name, value in values if value is not None}


def read_value(kind: Any, value: object, place: str) -> Any:
    """Parse a value of a type with bounds, from a flag or a file. BadInput begins with `place`."""
    return Option("value", "value", Opt(""), kind, False, None).read(value, place)


def _take_apart(kind: Any) -> tuple[Any, list[Any]]:
    """Return the type of a value, of a union the first, and its annotations, outermost first."""
    metas = list[Any]()
    while (origin := get_origin(kind)) is Annotated or origin in _UNIONS:
        metas += kind.__metadata__[::-1] if origin is Annotated else ()
        kind = get_args(kind)[0]
    return kind, metas


def _describe(kind: Any, words: Sequence[str] = ()) -> str:
    """Describe the values of a type: `a whole number from 2 to 4,096`, `cpu or cuda`."""
    if words:
        *first, last = words
        return f"{', '.join(first)} or {last}" if first else last
    kind, metas = _take_apart(kind)
    form = next((meta for meta in metas if isinstance(meta, Form)), None)
    if kind is bool:
        return "true or false"
    if kind not in (int, float):
        return "a text that is not empty" if form is None else form.what
    what, example = ("a whole number" if kind is int else "a number"), ""
    write: Callable[[Any], str] = _write
    if form is not None:
        what, write, example = form.what, form.write, form.example
    bounds = [meta for meta in metas if isinstance(meta, msgspec.Meta)]
    ge, gt, le = (
        next((bound for meta in bounds if (bound := getattr(meta, name)) is not None), None)
        for name in ("ge", "gt", "le")
    )
    if ge is not None:
        what += f" from {write(ge)}"
    elif gt is not None:
        what += f" above {write(gt)}" + (" and up" if le is not None else "")
    elif kind is int and form is None:
        what += " from 0"  # a text of an int has no sign
    return what + ("" if le is None else f" to {write(le)}") + example


def _write(bound: float) -> str:
    return f"{int(bound):,}" if bound == int(bound) else f"{bound:g}"
