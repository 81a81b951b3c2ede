"""What `serve-bench rpc` is asked to measure: backends, worlds, and the one argument that is swept.

Pure. Rule: the arguments of PyTorch's benchmark keep its names and its spellings; at most one of
them is a list, and it is the x axis. Every error is one line that names the flag and what it takes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from serve_bench.core.axes import only_keys
from serve_bench.core.errors import BadInput
from serve_bench.core.result import JsonObject, PlannedTrial, Row, trial_key

BACKENDS: Final = ("torch", "ray", "serve")
"""torch.distributed.rpc over TensorPipe; Ray actors; a Serve DeploymentHandle."""

PUBLISHED_ARGUMENTS: Final = (
    *("world_size", "master_addr", "master_port", "batch", "state_size", "nlayers"),
    *("out_features", "output_file_path"),
)
"""Those of PyTorch's benchmark, in its order (serve_bench/reference/torch_rpc.json)."""

LISTS: Final = (
    *("world_size", "batch", "state_size", "nlayers", "out_features", "device", "threads"),
)
"""Arguments that may be a list: what makes a world. Where none is, world_size is the x axis."""

KEYS: Final = (
    *LISTS,
    *("backend", "master_addr", "master_port", "episodes", "steps", "seconds", "launches"),
    *("warmup_s", "timeout_s", "policy_ms", "seed"),
)
"""Keys of the table `rpc` in a suite file."""

OPTIONAL: Final = ("seconds", "policy_ms")

MOST_EPISODES: Final = 1_000_000
"""So many where seconds end a world."""

MOST_SECONDS: Final = 86_400.0
MOST_PROCESSES: Final = 4096
MOST_NUMBERS: Final = 100_000_000
"""Of a state, and weights of a layer: 400 MB."""

#: Seconds of a start of the backend, and of each process of a world, and calls/s, on a host with 2
#: cores. They serve the estimate of time left alone.
START_S: Final = {"torch": 2.0, "ray": 5.0, "serve": 8.0}
EACH_S: Final = {"torch": 0.17, "ray": 0.6, "serve": 0.9}
CALLS_PER_S: Final = {"torch": 2500.0, "ray": 850.0, "serve": 250.0}

_TRUE: Final = ("true", "yes", "t", "y", "1")
_FALSE: Final = ("false", "no", "f", "n", "0")


@dataclass(frozen=True)
class World:
    """One agent and `world_size` - 1 observers. `device`: cpu or cuda, or auto until it is known;
    `threads`: of torch's operators in the agent."""

    world_size: int
    batch: bool
    state_size: tuple[int, ...]
    nlayers: int
    out_features: int
    device: str
    threads: int

    @property
    def observers(self) -> int:
        """All but the agent."""
        return self.world_size - 1

    @property
    def batch_size(self) -> int:
        """Requests that the policy takes at once."""
        return self.observers if self.batch else 1

    @property
    def cell(self) -> dict[str, Any]:
        """As it is recorded."""
        return {**asdict(self), "state_size": "-".join(str(one) for one in self.state_size)}

    @classmethod
    def from_cell(cls, cell: Mapping[str, Any]) -> World:
        """The reverse of `cell`. Raises KeyError, TypeError or ValueError."""
        given = {one.name: cell[one.name] for one in fields(cls)}
        sizes = tuple(int(one) for one in str(given["state_size"]).split("-"))
        return cls(**{**given, "state_size": sizes})


@dataclass(frozen=True)
class RpcSuite:
    """A run. An episode is `steps` calls of each observer; `seconds` ends a world after the episode
    in which they pass. A warm-up is at least two episodes, and goes on until it is steady or
    `warmup_s` have passed. `policy_ms`: a policy of that fixed time in place of the network."""

    backends: tuple[str, ...]
    worlds: tuple[World, ...]
    x_axis: str
    master_addr: str
    master_port: int
    episodes: int = 10
    steps: int = 100
    seconds: float | None = None
    launches: int = 1
    warmup_s: float = 3.0
    timeout_s: float = 60.0
    policy_ms: float | None = None
    seed: int = 1
    output_file_path: str | None = None
    sample: bool = True

    def to_json(self) -> dict[str, Any]:
        """Plain content for the Run record."""
        return {"name": "rpc", **asdict(self), "worlds": [one.cell for one in self.worlds]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RpcSuite:
        """The reverse, for going on with a stored run. Raises BadInput."""
        try:
            given = {one.name: data[one.name] for one in fields(cls)}
            given["backends"] = tuple(given["backends"])
            given["worlds"] = tuple(World.from_cell(one) for one in given["worlds"])
            return cls(**given)
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"the stored suite cannot be gone on with: {error}") from None

    @property
    def loads(self) -> int:
        """Worlds to be measured, over backends and launches."""
        return len(self.backends) * len(self.worlds) * self.launches


@dataclass(frozen=True)
class RpcLaunch:
    """One start of a backend, and the worlds to be measured on it in this order."""

    backend: str
    round: int
    worlds: tuple[tuple[World, PlannedTrial], ...]


def rpc_plan(suite: RpcSuite, done: Iterable[str] = ()) -> tuple[RpcLaunch, ...]:
    """The launches in order; trials whose keys are `done` are left out.

    Backends alternate within a round, and each round but the first draws the order of its worlds:
    so a drift of the machine meets them all alike.
    """
    finished, out = set(done), []
    for round_ in range(1, suite.launches + 1):
        worlds = list(suite.worlds)
        if round_ > 1:
            random.Random(suite.seed * 1000 + round_).shuffle(worlds)
        for backend in suite.backends:
            every = ((one, planned_trial(suite, backend, round_, one)) for one in worlds)
            left = tuple(pair for pair in every if pair[1].key not in finished)
            if left:
                out.append(RpcLaunch(backend, round_, left))
    return tuple(out)


def planned_trial(suite: RpcSuite, backend: str, round_: int, world: World) -> PlannedTrial:
    """The trial of one world on one backend."""
    cell: dict[str, Any] = dict(world.cell)
    if suite.policy_ms is not None:
        cell["policy_ms"] = suite.policy_ms
    count = world.observers
    row = Row(f"{count} observer{'' if count == 1 else 's'}", "observer", count, count)
    return PlannedTrial(trial_key(backend, round_, cell, row.label), round_, backend, cell, row)


def expected_s(suite: RpcSuite, launches: Sequence[RpcLaunch], done: int = 0) -> float:
    """About how long these launches take, without the first `done` worlds of them."""
    total, at = 0.0, 0
    for launch in launches:
        worlds = [world for place, (world, _) in enumerate(launch.worlds) if at + place >= done]
        at += len(launch.worlds)
        total += START_S[launch.backend] if worlds else 0.0
        total += sum(_world_s(suite, launch.backend, world) for world in worlds)
    return total


def _world_s(suite: RpcSuite, backend: str, world: World) -> float:
    calls = world.observers * suite.steps
    an_episode_s = calls / CALLS_PER_S[backend]
    if suite.policy_ms is not None:
        selections = suite.steps if world.batch else calls
        an_episode_s += selections * suite.policy_ms / 1e3
    measured_s = suite.episodes * an_episode_s
    if suite.seconds is not None:
        measured_s = min(measured_s, suite.seconds + an_episode_s)
    return EACH_S[backend] * world.world_size + 2 * an_episode_s + measured_s


def x_of(cell: JsonObject, x_axis: str) -> str:
    """A point of the x axis, as the published form writes it: `10`, `True`, `10-20-10`."""
    return str(cell.get(x_axis, "?"))


# ------------------------------------------------------------------------------------ reading


def read_rpc(data: Mapping[str, Any], file: str, flags: Mapping[str, str]) -> RpcSuite:
    """The suite of a file, and of the flags over it: those of KEYS that were given, as text.

    Raises BadInput, which names the flag, or the file and key.
    """
    texts = {**texts_of(data, file), **flags}
    where = {name: f"{file}: rpc.{name}" for name in KEYS}
    where |= {name: f"--{name.replace('_', '-')}" for name in flags}

    def whole(name: str, least: int, most: int) -> int:
        return int(read_number(texts[name].strip(), where[name], least, most))

    def real(name: str, least: float, most: float) -> float:
        return float(read_number(texts[name].strip(), where[name], least, most, whole=False))

    worlds, x_axis = read_worlds(texts, where)
    only_seconds = "seconds" in flags and "episodes" not in flags
    return RpcSuite(
        backends=read_backends(texts["backend"], where["backend"]),
        worlds=worlds,
        x_axis=x_axis,
        master_addr=texts["master_addr"],
        master_port=whole("master_port", 0, 65535),
        episodes=MOST_EPISODES if only_seconds else whole("episodes", 1, MOST_EPISODES),
        steps=whole("steps", 1, MOST_EPISODES),
        seconds=real("seconds", 0.1, MOST_SECONDS) if "seconds" in texts else None,
        launches=whole("launches", 1, 1000),
        warmup_s=real("warmup_s", 0.0, MOST_SECONDS),
        timeout_s=real("timeout_s", 0.1, MOST_SECONDS),
        policy_ms=real("policy_ms", 0.0, 60_000.0) if "policy_ms" in texts else None,
        seed=whole("seed", 0, 2**31),
    )


def read_worlds(
    given: Mapping[str, str], where: Mapping[str, str]
) -> tuple[tuple[World, ...], str]:
    """The worlds that the arguments in LISTS ask for, and the name of the x axis. Raises BadInput.

    `given`: every argument of LISTS as it was written; `where` each was: a flag, or a file and key.
    """
    lists = [name for name in LISTS if "," in given[name]]
    if len(lists) > 1:
        flags = " and ".join(where[name] for name in lists)
        raise BadInput(
            f"{flags}: only one argument may be a list, the x axis; give the others once"
        )
    x_axis = lists[0] if lists else "world_size"
    points = []
    for text in given[x_axis].split(","):
        texts = {**{name: given[name] for name in LISTS}, x_axis: text}
        world = World(**{name: _READ[name](where[name], texts[name].strip()) for name in LISTS})
        if world in points:
            raise BadInput(f"{where[x_axis]}: {text.strip()} stands there twice")
        points.append(world)
    return tuple(points), x_axis


def read_backends(text: str, where: str) -> tuple[str, ...]:
    """Backends with commas. Raises BadInput."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in BACKENDS:
            raise BadInput(f"{where}: {name!r} is not allowed; it takes {', '.join(BACKENDS)}")
        if names.count(name) > 1:
            raise BadInput(f"{where}: {name} stands there twice")
    return names


def texts_of(data: Mapping[str, Any], file: str) -> dict[str, str]:
    """The arguments of a suite file as they would be written behind flags. Raises BadInput."""
    only_keys(data, ("name", "rpc"), file)
    table = data.get("rpc", {})
    if not isinstance(table, Mapping):
        raise BadInput(f"{file}: rpc: takes a table of arguments")
    only_keys(table, KEYS, f"{file}: rpc")
    missing = [name for name in KEYS if name not in table and name not in OPTIONAL]
    if missing:
        raise BadInput(f"{file}: rpc: {missing[0]} is missing")
    return {
        name: ",".join(str(one) for one in value) if isinstance(value, list) else str(value)
        for name, value in table.items()
    }


def read_number(
    text: str, where: str, least: float, most: float, whole: bool = True
) -> int | float:
    """A number within bounds, a whole one unless told otherwise. Raises BadInput."""
    try:
        number = int(text) if whole else float(text)
    except ValueError:
        number = math.nan
    if not text.isascii() or "_" in text:  # which Python reads as digits too
        number = math.nan
    if not least <= number <= most:  # NaN is not
        kind = "a whole number" if whole else "a number"
        raise BadInput(
            f"{where}: {text!r} is not allowed; it takes {kind} from {least:,} to {most:,}"
        )
    return number


def _number(least: int, most: int, why: str = "") -> Callable[[str, str], int]:
    def read(flag: str, text: str) -> int:
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
        if number is None or not least <= number <= most:
            raise BadInput(
                f"{flag}: {text!r} is not allowed; it takes a number from {least} to {most}{why}"
            )
        return number

    return read


def _batch(flag: str, text: str) -> bool:
    word = text.lower()
    if word not in _TRUE + _FALSE:
        raise BadInput(f"{flag}: {text!r} is not allowed; it takes True or False")
    return word in _TRUE


def _state_size(flag: str, text: str) -> tuple[int, ...]:
    parts = text.split("-")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise BadInput(
            f"{flag}: {text!r} is not allowed; it takes whole numbers joined by -, such as 10-20-10"
        )
    sizes = tuple(int(part) for part in parts)
    numbers = math.prod(sizes)
    if not 1 <= numbers <= MOST_NUMBERS:
        many = f"{numbers:,}" if numbers < 10**18 else "10^18 or more"
        raise BadInput(
            f"{flag}: {text} makes a state of {many} numbers; it takes 1 to {MOST_NUMBERS:,}"
        )
    return sizes


def _device(flag: str, text: str) -> str:
    if text not in ("auto", "cpu", "cuda"):
        raise BadInput(f"{flag}: {text!r} is not allowed; it takes auto, cpu or cuda")
    return text


_READ: Final[dict[str, Callable[[str, str], Any]]] = {
    "world_size": _number(2, MOST_PROCESSES, ": one agent, and at least one observer"),
    "batch": _batch,
    "state_size": _state_size,
    "nlayers": _number(1, 1000),
    "out_features": _number(1, 10_000),
    "device": _device,
    "threads": _number(1, 1024),
}
