"""Every model of what a run is asked for: each option at its bounds, beyond them, and misspelt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, get_args, get_origin

import pytest
from msgspec import inspect

from serve_bench.benchmarks.rpc.spec import RpcSpec
from serve_bench.benchmarks.scale.spec import WORKLOADS
from serve_bench.core.content import Content
from serve_bench.core.spec import Option, Spec
from serve_bench.core.timeline import Timeline
from serve_bench.spec.profile import ProfileSpec
from serve_bench.spec.request import RequestKeys, ServeKeys
from serve_bench.spec.suite_keys import SuiteKeys
from tests.cases import refusal

MODELS: Final[dict[str, type[Spec]]] = {
    "rpc": RpcSpec,
    **WORKLOADS,
    "suite": SuiteKeys,
    "profile": ProfileSpec,
    "timeline": Timeline,
    "request": RequestKeys,
    "serve": ServeKeys,
}
#: With what a timeline cannot be without.
EMPTY: Final = Content("f.toml", {"timeline": {"stages": "9:9s"}})
#: The shortest warm-up is at most the longest.
TOGETHER: Final = ("warmup_seconds", "warmup_max_seconds")
OPTIONS: Final = [
    pytest.param(model, option, id=f"{name}-{option.name}")
    for name, model in MODELS.items()
    for option in model.options().values()
]
each_option = pytest.mark.parametrize(("model", "option"), OPTIONS)


def file(option: Option, value: Any) -> Content:
    return EMPTY.set(option.key, value, f"f.toml: {option.key}")


def flags(model: type[Spec], given: dict[str, str], content: Content = EMPTY) -> Content:
    return model.add_flags(content, given)


def number_of(option: Option) -> inspect.IntType | inspect.FloatType | None:
    """Find the type of a number with its bounds, and without a reader of its own."""
    info = inspect.type_info(option.kind)
    parts = info.types if isinstance(info, inspect.UnionType) else (info,)
    for part in parts if option.reader is None else ():
        if isinstance(part, inspect.IntType | inspect.FloatType):
            return part
    return None


def beyond(option: Option) -> Iterator[str]:
    """Texts that no option of its type takes."""
    if get_origin(option.kind) is Literal:
        yield from ("", "nothing-like-it", f"{get_args(option.kind)[0]}x")
    elif option.reader is not None:
        yield "nothing like it"
    elif (number := number_of(option)) is not None:
        whole = isinstance(number, inspect.IntType)
        yield from ("", "x", "nan", "inf", "-inf", "1_0", "\u0663", "9" * 5000)
        yield from ("1s",) if option.reader is None else ()
        yield from ("7.0", "1e3") if whole else ()
        step = 1 if whole else 1e-3 * max(1.0, abs(number.ge or 0))
        yield from (str((number.ge or 0) - step), str((number.le or 0) + 10 * step))


@each_option
def test_what_is_beyond_a_bound_is_refused_in_one_line(model: type[Spec], option: Option) -> None:
    texts = [*beyond(option)]
    wrong = [(option.flag, flags(model, {option.name: text})) for text in texts]
    table: Any = {"a": 1} if option.name != "header" else 1  # which may stand in a table
    for value in (*texts, table, [[1]], [], ["x", {"a": 1}]):
        wrong.append((f"f.toml: {option.key}", file(option, value)))
    for place, content in wrong:
        said = refusal(model.read, content)
        assert said.startswith(f"{place}: ") and f"; it takes {option.takes}" in said
        assert len(said) < 300


@each_option
def test_a_bound_is_taken_from_flag_and_file(model: type[Spec], option: Option) -> None:
    if option.name in TOGETHER:
        return
    number = number_of(option)
    values: list[Any] = [*get_args(option.kind)] if get_origin(option.kind) is Literal else []
    if number is not None:
        values = [bound for bound in (number.ge, number.le) if bound is not None]
    for value in values:
        known = (value,) if option.listed else value
        read = (
            model.read(flags(model, {option.name: f" {value} "})),
            model.read(file(option, value)),
            model.read(file(option, [value]) if option.listed else EMPTY),
        )
        assert getattr(read[0], option.name) == getattr(read[1], option.name) == known
        assert not option.listed or getattr(read[2], option.name) == known


@each_option
def test_flags_go_first_and_values_stand_once(model: type[Spec], option: Option) -> None:
    known = (option.default or (None,))[0] if option.listed else option.default
    if known in (None, ()) or isinstance(known, bool):
        return
    again = model.read(flags(model, {option.name: str(known)}, file(option, {"a": 1})))
    assert getattr(again, option.name) == ((known,) if option.listed else known)
    if option.listed:
        twice = refusal(model.read, flags(model, {option.name: f"{known}, {known}"}))
        assert twice == f"{option.flag}: {known} is given twice"


@pytest.mark.parametrize("name", MODELS)
def test_a_model_comes_back_from_its_record_and_damage_names_its_field(name: str) -> None:
    model = MODELS[name]
    assert model.stored(model().to_json()) == model()
    for field in model.options():
        said = refusal(model.stored, {**model().to_json(), field: {"a": 1}})
        assert said.startswith(f"the stored suite cannot be resumed: suite.{field}")
