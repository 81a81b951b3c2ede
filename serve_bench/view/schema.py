"""The JSON Schema of a run's JSON, made of the figures that are declared.

Its dialect is that of draft 2020-12. A figure has one name, unit and meaning in the runs of all
kinds; of a family, such as `batch_size_mean.Ranker`, each member has those of the family.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias, get_args

from serve_bench.view.document import Tone
from serve_bench.view.figures import FIGURES
from serve_bench.view.lens import FORMAT

Schema: TypeAlias = dict[str, Any]

COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
KNOWN_TEXT: Final[Schema] = {"type": ["string", "null"]}
TYPES: Final = {str: "string", float: "number", dict: "object"}

RUN: Final = {
    **dict.fromkeys(("id", "command", "started_at", "tool_version"), str),
    **dict.fromkeys(("git_commit", "records"), KNOWN_TEXT),
    "argv": [str],
}
WHOLE: Final = {
    **{"format": {"const": FORMAT}, "run": RUN, "host": dict, "findings": ["finding"]},
    **{"rows": ["row"], "points": ["part"], "comparisons": ["part"], "notes": [str]},
    **{key: [dict] for key in ("variants", "launches", "deploys", "warnings", "failures")},
}
FINDING: Final = {
    **dict.fromkeys(("text", "code", "hint", "about"), str),
    "tone": {"enum": list(get_args(Tone))},
}
PART: Final = {
    **{"name": str, "group": str, "dims": dict, "figures": "figures"},
    **{"warnings": ["finding"], "notes": [str]},
}
"""A row, a point or a comparison."""
ROW: Final = PART | {
    **dict.fromkeys(("row", "limited_by", "failed"), dict),
    **{"keys": [str], "trials": {"": "trial"}, "failures": [dict]},
}
TRIAL: Final = {
    "key": str,
    "requests": {
        **dict.fromkeys(("carried_in", "sent", "completed", "in_flight"), COUNT),
        "failed": {"": COUNT},
    },
    **{"windows": {"": [float]}, "profiles": [dict]},
}
VALUE: Final = {
    **{"unit": str, "lower_bound": {"const": True}},
    **dict.fromkeys(("value", "std", "launch_std", "low", "high", "of"), float),
    **{"windows": COUNT, "missing": COUNT, "launches": {"": float}},
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
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "serve-bench report --format json",
        **_closed(WHOLE),
        "$defs": {
            "finding": _closed(FINDING),
            "part": _schema(PART),
            "row": _schema(ROW),
            "trial": _schema(TRIAL),
            "value": _closed(VALUE) | {"required": ["unit", "value"]},
            "figures": _closed({}) | {"patternProperties": figures},
        },
    }


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


def _closed(shape: Any) -> Schema:
    """An object that has all of its names and no others."""
    return _schema(shape) | {"additionalProperties": False}
