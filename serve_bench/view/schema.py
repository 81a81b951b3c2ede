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

TEXT: Final[Schema] = {"type": "string"}
NUMBER: Final[Schema] = {"type": "number"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
ANY: Final[Schema] = {"type": "object"}
KNOWN_TEXT: Final[Schema] = {"type": ["string", "null"]}


def make_schema() -> Schema:
    """The schema, with the figures of all kinds of run that are imported."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "serve-bench report --format json",
        **_closed(
            format={"const": FORMAT},
            run=_object(
                **dict.fromkeys(("id", "command", "started_at", "tool_version"), TEXT),
                **dict.fromkeys(("git_commit", "records"), KNOWN_TEXT),
                argv=_list(TEXT),
            ),
            host=ANY,
            findings=_list(_to("finding")),
            rows=_list(_to("row")),
            **dict.fromkeys(("points", "comparisons"), _list(_to("part"))),
            **dict.fromkeys(
                ("variants", "launches", "deploys", "warnings", "failures"), _list(ANY)
            ),
            notes=_list(TEXT),
        ),
        "$defs": {
            "finding": _closed(
                **dict.fromkeys(("text", "code", "hint", "about"), TEXT),
                tone={"enum": list(get_args(Tone))},
            ),
            "part": _part(),
            "row": _part(
                **dict.fromkeys(("row", "limited_by", "failed"), ANY),
                keys=_list(TEXT),
                trials=_map(_to("trial")),
                failures=_list(ANY),
            ),
            "trial": _object(
                key=TEXT,
                requests=_object(
                    **dict.fromkeys(("carried_in", "sent", "completed", "in_flight"), COUNT),
                    failed=_map(COUNT),
                ),
                windows=_map(_list(NUMBER)),
                profiles=_list(ANY),
            ),
            "value": {
                **_closed(
                    unit=TEXT,
                    lower_bound={"const": True},
                    **dict.fromkeys(("value", "std", "launch_std", "low", "high", "of"), NUMBER),
                    **dict.fromkeys(("windows", "missing"), COUNT),
                    launches=_map(NUMBER),
                ),
                "required": ["unit", "value"],
            },
            "figures": {
                **_closed(),
                "patternProperties": {
                    rf"^{name}(\..+)?$": {
                        "$ref": "#/$defs/value",
                        "title": figure.title,
                        "description": figure.meaning,
                        "properties": {"unit": {"const": figure.unit}},
                    }
                    for name, figure in sorted(FIGURES.items())
                },
            },
        },
    }


def _part(**more: Schema) -> Schema:
    """A row, a point or a comparison."""
    return _object(
        **dict.fromkeys(("name", "group"), TEXT),
        dims=ANY,
        figures=_to("figures"),
        warnings=_list(_to("finding")),
        notes=_list(TEXT),
        **more,
    )


def _to(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _map(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def _object(**properties: Schema) -> Schema:
    """An object that has all of these, and may have others."""
    return {"type": "object", "required": list(properties), "properties": properties}


def _closed(**properties: Schema) -> Schema:
    """An object that has all of these and no others."""
    return {**_object(**properties), "additionalProperties": False}
