"""The JSON Schema of suites: as the models say, and true of every suite that is shipped."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from scripts.suite_schema import PLACE, suite_schema
from serve_bench.store.files import read_toml
from tests.places import TOP

SUITES = [*(TOP / "scenarios").glob("*.toml"), TOP / "examples" / "own_app" / "shop.toml"]


def test_the_stored_schema_is_that_of_the_models() -> None:
    assert json.loads(PLACE.read_text(encoding="utf-8")) == suite_schema()
    Draft202012Validator.check_schema(suite_schema())


@pytest.mark.parametrize("file", SUITES, ids=lambda file: file.stem)
def test_a_shipped_suite_names_the_schema_and_is_valid(file: Path) -> None:
    first = file.read_text(encoding="utf-8").splitlines()[0]
    assert (file.parent / first.removeprefix("#:schema ")).resolve() == PLACE
    validator, data = Draft202012Validator(suite_schema()), read_toml(file)
    assert not list(validator.iter_errors(data))
    for broken in (
        {**data, "launchs": 1},
        {**data, "load": {**data.get("load", {}), "windows": 0}},
        {**data, "matrix": {"num_replica": [1]}},
    ):
        assert list(validator.iter_errors(broken))
