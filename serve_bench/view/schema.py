"""The JSON Schema (draft 2020-12) of a run's JSON: a shipped file, with the declared figures.

A figure has one name, unit and meaning in the runs of all kinds; of a family, such as
`batch_size_mean.Ranker`, each member has those of the family.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from serve_bench.view.figures import FIGURES
from serve_bench.view.published import reference


def make_schema() -> dict[str, Any]:
    """The schema, with the figures of all kinds of run that are imported."""
    schema: dict[str, Any] = deepcopy(reference("run.schema.json"))
    schema["$defs"]["figures"]["patternProperties"] = {
        rf"^{name}(\..+)?$": {
            "$ref": "#/$defs/value",
            "title": figure.title,
            "description": figure.meaning,
            "properties": {"unit": {"const": figure.unit}},
        }
        for name, figure in sorted(FIGURES.items())
    }
    return schema
