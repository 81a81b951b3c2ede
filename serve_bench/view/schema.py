"""The JSON Schema (draft 2020-12) of a run's JSON, made of the figures that are declared.

A figure has one name, unit and meaning in the runs of all kinds; of a family, such as
`batch_size_mean.Ranker`, each member has those of the family.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias, get_args

from serve_bench.view.document import Tone
from serve_bench.view.figures import FIGURES
from serve_bench.view.lens import FORMAT

Schema: TypeAlias = dict[str, Any]

COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
TYPES: Final = {str: "string", float: "number", dict: "object"}

RUN: Final = {
    **dict.fromkeys(("id", "command", "started_at", "tool_version"), str),
    **{key: {"type": ["string", "null"]} for key in ("git_commit", "records")},
    "argv": [str],
}
WHOLE: Final = {
    **{"format": {"const": FORMAT}, "run": RUN, "host": dict, "findings": ["finding"]},
    **{"rows": ["row"], "points": ["part"], "comparisons": ["part"], "notes": [str]},
    **{key: [dict] for key in ("variants", "launches", "deploys", "warnings", "failures")},
}
PART: Final = {
    **{"name": str, "group": str, "dims": dict, "figures": "figures"},
    **{"warnings": ["finding"], "notes": [str]},
}
"""A row, a point or a comparison."""
REQUESTS: Final = {
    **dict.fromkeys(("carried_in", "sent", "completed", "in_flight"), COUNT),
    "failed": {"": COUNT},
}
SHAPES: Final[dict[str, Schema]] = {
    "finding": {
        **dict.fromkeys(("text", "code", "hint", "about"), str),
        "tone": {"enum": list(get_args(Tone))},
    },
    "part": PART,
    "row": {
        **PART,
        **dict.fromkeys(("row", "limited_by", "failed"), dict),
        **{"keys": [str], "trials": {"": "trial"}, "failures": [dict]},
    },
    "trial": {"key": str, "requests": REQUESTS, "windows": {"": [float]}, "profiles": [dict]},
    "value": {
        **{"unit": str, "lower_bound": {"const": True}, "launches": {"": float}},
        **dict.fromkeys(("value", "std", "launch_std", "low", "high", "of"), float),
        **{"windows": COUNT, "missing": COUNT},
    },
}


def make_schema() -> Schema:
    """The schema, with the figures of all kinds of run that are imported."""
    figures = {
        rf"^{name}(\..+)?$": {
            "$ref": "#/$defs/value",
            "title": figure.title,
            "description": figure.meaning,
            "properties": {"unit": {"const": figure.unit}},
        }
        for name, figure in sorted(FIGURES.items())
    }
    whole, parts = _schema(WHOLE), {name: _schema(shape) for name, shape in SHAPES.items()}
    parts["value"]["required"] = ["unit", "value"]
    parts["figures"] = {"type": "object", "patternProperties": figures}
    for closed in (whole, parts["finding"], parts["value"], parts["figures"]):
        closed["additionalProperties"] = False
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return dialect | {"title": "serve-bench report --format json", **whole, "$defs": parts}


def _schema(shape: Any) -> Schema:
    """A name: a definition; a type; a list of a shape; an object that has all of its names and may
    have others, or, of the name "", any names. What is a schema already is taken as it is."""
    match shape:
        case str():
            return {"$ref": f"#/$defs/{shape}"}
        case type():
            return {"type": TYPES[shape]}
        case [items]:
            return {"type": "array", "items": _schema(items)}
        case {"": values}:
            return {"type": "object", "additionalProperties": _schema(values)}
        case {"const": _} | {"enum": _} | {"type": _}:
            return dict(shape)
    properties = {name: _schema(item) for name, item in shape.items()}
    return {"type": "object", "required": list(properties), "properties": properties}
