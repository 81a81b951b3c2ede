"""A Serve app of the user's own: what is known of it, how it is asked, and what a cell sets in it.

Rule: words alone. What the app is was told by its own interpreter (own_app_facts.py); a cell holds
options as `Deployment.option`, such as `Ranker.ray_actor_options.num_cpus`. What Serve calls an
option, this calls it too.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeAlias

from serve_bench.axes import LARGEST_COUNT, nearest
from serve_bench.errors import BadInput

Option: TypeAlias = int | float | str | bool

#: The name that the app has within Serve.
APP_NAME: Final = "app"

#: Further spellings of options, by the one that Serve knows now.
SPELLINGS: Final = {"max_concurrent_queries": "max_ongoing_requests"}

#: Tables of options whose keys are the app's own affair.
FREE: Final = "user_config."

#: Headers whose values are kept in records: no token is one of them.
NO_SECRET: Final = ("content-type", "accept")

#: Options that a replica itself can tell; of the others Serve's word has to do.
TOLD_BY_REPLICAS: Final = (
    "max_ongoing_requests",
    "max_queued_requests",
    "ray_actor_options.num_cpus",
    "ray_actor_options.num_gpus",
)


@dataclass(frozen=True)
class OwnDeployment:
    """A deployment as the app's code makes it. `num_replicas` None: Serve scales it by itself.

    `tables`: options that are tables, since a config replaces them whole: what a cell sets in one
    is added to what the code has there.
    """

    name: str
    num_replicas: int | None
    num_cpus: float = 1.0
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """The request that a load makes of the app. `expect_status` empty means any 2xx."""

    route: str = "/"
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    expect_status: tuple[int, ...] = ()


@dataclass(frozen=True)
class OwnApp:
    """An app as it was found. `target`: as it was named; `folder`: where Python finds it.

    `deployments`: the last one is the ingress. `options`: those that a deployment of that Ray takes
    (`num_replicas`, `ray_actor_options.num_cpus` ..., `user_config.*`).
    """

    target: str
    import_path: str
    folder: str
    deployments: tuple[OwnDeployment, ...]
    options: tuple[str, ...]
    asked: Asked = field(default_factory=Asked)

    @property
    def ingress(self) -> str:
        """The deployment that HTTP meets."""
        return self.deployments[-1].name

    def count(self, deployment: OwnDeployment, cell: Mapping[str, Option]) -> int | None:
        """Replicas of a deployment in this cell; None where Serve scales it by itself."""
        asked = cell.get(f"{deployment.name}.num_replicas", deployment.num_replicas)
        scaled = f"{deployment.name}.autoscaling_config."
        if any(key.startswith(scaled) for key in cell) and deployment.num_replicas is None:
            return None
        return asked if isinstance(asked, int) else None

    def replicas(self, cell: Mapping[str, Option]) -> int:
        """Replicas of all deployments; one that Serve scales counts as it starts: one."""
        return sum(self.count(one, cell) or 1 for one in self.deployments)

    def cpus(self, cell: Mapping[str, Option]) -> float:
        """Logical CPUs of Ray that all replicas ask for."""
        return sum(
            (self.count(one, cell) or 1)
            * float(cell.get(f"{one.name}.ray_actor_options.num_cpus", one.num_cpus))
            for one in self.deployments
        )

    def to_json(self) -> dict[str, Any]:
        """Plain content, without the values of headers that may be secret."""
        asked = asdict(self.asked) | {
            "headers": [
                [name, value if name.lower() in NO_SECRET else None]
                for name, value in self.asked.headers
            ],
            "body": base64.b64encode(self.asked.body).decode("ascii"),
        }
        return asdict(self) | {"asked": asked}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> OwnApp:
        """The reverse of `to_json`. BadInput where headers were not kept; KeyError, TypeError."""
        given = dict(data)
        asked = dict(given["asked"])
        if any(value is None for _, value in asked["headers"]):
            raise BadInput(
                "the stored run sent headers, whose values are not kept: start a new one"
            )
        given["asked"] = Asked(
            **asked
            | {
                "headers": tuple((name, value) for name, value in asked["headers"]),
                "body": base64.b64decode(asked["body"]),
                "expect_status": tuple(asked["expect_status"]),
            }
        )
        given["deployments"] = tuple(OwnDeployment(**one) for one in given["deployments"])
        given["options"] = tuple(given["options"])
        return cls(**given)


# ------------------------------------------------------------------------------- options


def option_named(app: OwnApp, name: str, where: str) -> str:
    """`Deployment.option` as the app and its Serve know it. BadInput names the nearest."""
    deployment, dot, option = name.partition(".")
    known = [one.name for one in app.deployments]
    if not dot or not option:
        raise BadInput(
            f"{where}: {name!r} is not allowed; it takes Deployment.option=values, such as "
            f"{app.ingress}.num_replicas=1,2"
        )
    if deployment not in known:
        raise BadInput(
            f"{where}: {app.target} has no deployment {deployment!r}{nearest(deployment, known)}"
        )
    option = SPELLINGS.get(option, option) if option not in app.options else option
    if not (option in app.options or (option.startswith(FREE) and option != FREE)):
        raise BadInput(
            f"{where}: {deployment} takes no option {option!r}{nearest(option, app.options)}"
        )
    return f"{deployment}.{option}"


def option_values(text: str) -> tuple[Option, ...]:
    """One or more values with commas: numbers, true or false, else words."""
    return tuple(_value(part.strip()) for part in text.split(","))


def _value(text: str) -> Option:
    words = {"true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text) if text.isascii() and "_" not in text else text
        except ValueError:
            continue
    return text


def read_options(
    app: OwnApp, asked: Sequence[tuple[str, Sequence[Option]]], where: str
) -> dict[str, tuple[Option, ...]]:
    """The options to be swept, each with its values, in the order given. BadInput."""
    found: dict[str, tuple[Option, ...]] = {}
    for name, values in asked:
        key = option_named(app, name, where)
        if key in found:
            raise BadInput(f"{where}: {key} is given twice")
        if not values or "" in values:
            raise BadInput(f"{where}: {key}: at least one value is needed, and none may be empty")
        for value in values:
            if list(map(repr, values)).count(repr(value)) > 1:
                raise BadInput(f"{where}: {key}: {value} is given twice")
            if key.endswith(".num_replicas") and not _is_count(value):
                raise BadInput(
                    f"{where}: {key}: {value!r} is not allowed; it takes whole numbers from 1 to "
                    f"{LARGEST_COUNT}, with commas"
                )
        found[key] = tuple(values)
    return found


def _is_count(value: Option) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LARGEST_COUNT


# -------------------------------------------------------------------------------- deploy


def deployments_of(app: OwnApp, cell: Mapping[str, Option]) -> list[dict[str, Any]]:
    """What a declarative deploy of Serve says of each deployment: what the cell sets, with what the
    code has in the same table."""
    told = []
    for one in app.deployments:
        settings: dict[str, Any] = {"name": one.name}
        for key, value in _settings(one.name, cell).items():
            table, dot, name = key.partition(".")
            if not dot:
                settings[key] = value
                continue
            settings.setdefault(table, dict(one.tables.get(table, {})))[name] = value
        told.append(settings)
    return told


def checks_of(app: OwnApp, cell: Mapping[str, Option]) -> list[dict[str, Any]]:
    """What must be true of each deployment once the cell is in force: its replicas, what they tell
    of themselves (`expect`), and what Serve tells of them (`told`)."""
    checks = []
    for one in app.deployments:
        asked = _settings(one.name, cell)
        asked.pop("num_replicas", None)
        expect = {k: v for k, v in asked.items() if k in TOLD_BY_REPLICAS or k.startswith(FREE)}
        checks.append(
            {
                "deployment": one.name,
                "replicas": app.count(one, cell),
                "expect": expect,
                "told": {key: value for key, value in asked.items() if key not in expect},
            }
        )
    return checks


def slots_of(replicas: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Requests that all replicas of each deployment take at once, from the proof of a deploy."""
    slots: dict[str, int] = {}
    for one in replicas:
        if one.get("max_ongoing_requests") is not None:
            name = str(one["deployment"])
            slots[name] = slots.get(name, 0) + int(one["max_ongoing_requests"])
    return slots


def _settings(deployment: str, cell: Mapping[str, Option]) -> dict[str, Option]:
    prefix = f"{deployment}."
    return {k.removeprefix(prefix): v for k, v in cell.items() if k.startswith(prefix)}
