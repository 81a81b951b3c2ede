"""The JSON Schema of suite files, for editors.

`python scripts/suite_schema.py` writes it to scenarios/suite.schema.json, from the models and axes
that read a suite; what goes together is checked by them alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, get_type_hints

import msgspec

from serve_bench.benchmarks.rpc.spec import RpcSpec
from serve_bench.benchmarks.scale.spec import WORKLOADS
from serve_bench.core.axes import AXES
from serve_bench.core.errors import BadInput
from serve_bench.core.row_places import MetricNames
from serve_bench.core.spec import Opt, Option
from serve_bench.core.timeline import Timeline
from serve_bench.core.variants import VariantTable
from serve_bench.spec.request import RequestKeys, ServeKeys
from serve_bench.spec.suite_keys import SuiteKeys

PLACE: Final = Path(__file__).parent.parent / "scenarios" / "suite.schema.json"

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_ANY: Final[Schema] = {"type": ["string", "number", "boolean"]}


def suite_schema() -> Schema:
    """Return the schema of every suite that a command reads."""
    top = {name: option for name, option in SuiteKeys.options().items() if option.key == name}
    load = {name: option for name, option in SuiteKeys.options().items() if name not in top}
    cell, matrix = _of_axes("deploy"), _of_axes("deploy", listed=True)
    scale = {name: option for kind in WORKLOADS.values() for name, option in kind.options().items()}
    sizes = {"workload": {"enum": [*WORKLOADS]}, **_of_options(scale)}
    hints = get_type_hints(VariantTable, include_extras=True)
    variant = {name: msgspec.json.schema(kind) for name, kind in hints.items()}
    row = {
        **{"client": {"type": ["string", "integer"]}, "cells": _table(cell)},
        "metrics": _table(dict.fromkeys(MetricNames.__dataclass_fields__, _TEXT)),
        **_of_axes("load"),
        **_of_options({name: load[name] for name in ("windows", "window_seconds")}),
    }
    properties: Schema = {
        **dict.fromkeys(("name", "app", "app_name", "slo"), _TEXT),
        **_of_options(top),
        "quick": {"anyOf": [{"type": "boolean"}, _table(sizes)]},
        "env": {"type": "object"},
        "variants": {"type": "object", "additionalProperties": _table(variant)},
        "load": _table(_of_axes("load", listed=True) | _of_options(load)),
        **{"cell": _table(cell), "matrix": _table(matrix)},
        **{"cells": _listed(_table(cell)), "rows": _listed(_table(row))},
        "options": {"type": "object", "additionalProperties": {"anyOf": [_ANY, _listed(_ANY)]}},
        "request": _table(_of_options(RequestKeys.options()) | {"headers": {}}),  # a table too
        "serve": _table(_of_options({k: v for k, v in ServeKeys.options().items() if v.key != k})),
        **{"timeline": _table(_of_options(Timeline.options())), "scale": _table(sizes)},
        "rpc": _table(_of_options(RpcSpec.options())),
    }
    schema = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": schema, "title": "A suite of serve-bench"} | _table(properties)


def _table(properties: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": dict(properties)}


def _listed(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def _of_axes(scope: str, *, listed: bool = False) -> dict[str, Schema]:
    schemas = {}
    for axis in AXES.values():
        if axis.scope == scope:
            option = Option(axis.name, axis.name, Opt(axis.help), axis.kind, listed, None)
            about = {"description": f"{axis.help}; {option.takes}", "default": axis.default}
            schemas[axis.name] = {**_of_option(option), **about}
    return schemas


def _of_options(options: Mapping[str, Option]) -> dict[str, Schema]:
    return {option.key.rpartition(".")[2]: _of_option(option) for option in options.values()}


def _of_option(option: Option) -> Schema:
    value = msgspec.json.schema(option.kind)
    if option.reader is not None:
        value = {"type": ["string"]}
        for name, sample in (("number", 1), ("boolean", True)):
            with suppress(BadInput):
                option.read(sample, "")
                value["type"].append(name)
    value = {"anyOf": [value, _listed(value)]} if option.listed or option.repeated else value
    return {**value, "description": option.help}


if __name__ == "__main__":
    PLACE.write_text(json.dumps(suite_schema(), indent=1) + "\n", encoding="utf-8")
