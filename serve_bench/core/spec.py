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


@dataclass(eq=False)
class Option:
    """A field of a Spec that the user sets. `kind`: of a value, with its bounds; `listed`: it takes
    several of them, with commas behind a flag, as a list in a file; `repeated`: a flag of one value
    may be given several times. `key`: in a suite file.

    Of these follow `flag`, as a message names it: the first long spelling, an argument in capitals;
    `reader`, what makes a value of a text, None where its type alone does; `is_switch`: its flag
    takes no value; `words`: all that it takes; `shape`: what its text looks like, as `N[,N...]` or
    `WORD`, None of a switch; `help`: with the default, where that is worth a word."""

    name: str
    key: str
    opt: Opt
    kind: Any
    listed: bool
    default: Any
    repeated: bool = False

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
        """What a refusal says of its values."""
        words = () if self.form is not None and self.form.words else self.words
        return (self.opt.takes or _describe(self.kind, words)) + self.opt.why

    def read(self, value: Any, place: str) -> Any:
        """The value of a text behind a flag, or of what a file has at `place`. Raises BadInput."""
        if self.repeated:
            given = value if isinstance(value, list | tuple) and value else [value]
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
    """What a command measures. Fields without an Opt are what the command line says besides.
    `table`: of a suite file, in which its keys stand."""

    table: ClassVar[str] = ""

    @classmethod
    @cache
    def options(cls) -> Mapping[str, Option]:
        """What the user can set, by field, in the order of the help. A field that is declared anew
        without an Opt keeps that of the class above: it has another default."""
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
        for known in fields(cls):
            if (opt := opts.get(known.name)) is None:
                continue
            kind, metas = hints[known.name]
            inner = get_args(kind)[0] if get_origin(kind) in _UNIONS else kind
            whole = any(isinstance(meta, Form) for meta in metas)  # of all that the text holds
            listed, repeated = get_origin(inner) is tuple and not whole, get_origin(inner) is list
            kind = get_args(inner)[0] if listed or repeated else kind
            kept = [meta for meta in metas if isinstance(meta, msgspec.Meta | Form)]
            if opt.bounds is not None:
                kept.append(msgspec.Meta(ge=opt.bounds[0], le=opt.bounds[1]))
                kind = get_args(kind)[0] if get_origin(kind) in _UNIONS else kind
            kind = Annotated[(kind, *kept)] if kept else kind
            key = opt.key or f"{cls.table}.{known.name}".removeprefix(".")
            default = None if known.default_factory is not MISSING else known.default
            options[known.name] = Option(known.name, key, opt, kind, listed, default, repeated)
        return options

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


def take_fields(kind: type[Any], *items: object) -> dict[str, Any]:
    """The values that these objects have of the fields of a dataclass, where they are not None."""
    pairs = ((item, known.name) for item in items for known in fields(kind))
    values = ((name, getattr(item, name, None)) for item, name in pairs)
    return {name: value for name, value in values if value is not None}


def read_value(kind: Any, value: object, place: str) -> Any:
    """A value of a type with its bounds, as a flag or a file has it. Raises BadInput, which begins
    with `place`."""
    return Option("value", "value", Opt(""), kind, False, None).read(value, place)


def _take_apart(kind: Any) -> tuple[Any, list[Any]]:
    """The type of a value that may be left out, which a union has first, and all that annotates it:
    what stands further out comes first."""
    metas = list[Any]()
    while (origin := get_origin(kind)) is Annotated or origin in _UNIONS:
        metas += kind.__metadata__[::-1] if origin is Annotated else ()
        kind = get_args(kind)[0]
    return kind, metas


def _describe(kind: Any, words: Sequence[str] = ()) -> str:
    """What values of a type look like: `a whole number from 2 to 4,096`, `cpu or cuda`."""
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
    return what + ("" if le is None else f" to {write(le)}") + example


def _write(bound: float) -> str:
    return f"{int(bound):,}" if bound == int(bound) else f"{bound:g}"
