"""What `serve-bench rpc` is asked to measure: backends, worlds, and the one argument that is swept.

Pure. Rule: the arguments of PyTorch's benchmark keep its names and its spellings; at most one of
them is a list, and it is the x axis. Every error is one line that names the flag and what it takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from serve_bench.benchmarks.arguments import Arguments, real, whole
from serve_bench.core.axes import Kind, one_of, only_keys
from serve_bench.core.errors import BadInput
from serve_bench.core.figures import counted
from serve_bench.core.plan import LaunchPlan, orders, without
from serve_bench.core.result import JsonObject, PlannedTrial, Row, VariantUsed, trial_key
from serve_bench.core.schema import built, plain, stored_suite

Backend: TypeAlias = Literal["torch", "ray", "serve"]
"""torch.distributed.rpc over TensorPipe; Ray actors; a Serve DeploymentHandle."""

PUBLISHED_ARGUMENTS: Final = (
    *("world_size", "master_addr", "master_port", "batch", "state_size", "nlayers"),
    *("out_features", "output_file_path"),
)
"""Those of PyTorch's benchmark, in its order (serve_bench/reference/torch_rpc.json)."""

MOST_EPISODES: Final = 1_000_000
"""So many where seconds end a world."""

MOST_SECONDS: Final = 86_400.0
MOST_NUMBERS: Final = 100_000_000
"""Of a state, and weights of a layer: 400 MB."""

_TRUE: Final = ("true", "yes", "t", "y", "1")
_FALSE: Final = ("false", "no", "f", "n", "0")


def _read_batch(value: object) -> bool:
    text = str(value).lower()
    if text not in _TRUE + _FALSE:
        raise ValueError(text)
    return text in _TRUE


def _read_state_size(value: object) -> Any:
    parts = str(value).split("-")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise ValueError(value)
    return tuple(map(int, parts))


LISTS: Final[Mapping[str, Kind]] = {
    "world_size": whole(2, 4096, ": one agent, and at least one observer"),
    "batch": Kind(_read_batch, "True or False"),
    "state_size": Kind(_read_state_size, "whole numbers joined by -, such as 10-20-10"),
    "nlayers": whole(1, 1000),
    "out_features": whole(1, 10_000),
    "device": one_of("auto", "cpu", "cuda"),
    "threads": whole(1, 1024),
}
"""Arguments that may be a list: what makes a world. Where none is, world_size is the x axis."""

SETTINGS: Final[Mapping[str, Kind]] = {
    "master_port": whole(0, 65535),
    "episodes": whole(1, MOST_EPISODES),
    "steps": whole(1, MOST_EPISODES),
    "seconds": real(0.1, MOST_SECONDS),
    "launches": whole(1, 1000),
    "warmup_s": real(0.0, MOST_SECONDS),
    "timeout_s": real(0.1, MOST_SECONDS),
    "policy_ms": real(0.0, 60_000.0),
    "seed": whole(0, 2**31),
}

KEYS: Final = (*LISTS, "backend", "master_addr", *SETTINGS)
"""Keys of the table `rpc` in a suite file."""

OPTIONAL: Final = ("seconds", "policy_ms")

#: Seconds of a start of the backend, and of each process of a world, and calls/s, on a host with 2
#: cores. They serve the estimate of time left alone.
START_S: Final = {"torch": 2.0, "ray": 5.0, "serve": 8.0}
EACH_S: Final = {"torch": 0.17, "ray": 0.6, "serve": 0.9}
CALLS_PER_S: Final = {"torch": 2500.0, "ray": 850.0, "serve": 250.0}


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
        return {**asdict(self), "state_size": "-".join(map(str, self.state_size))}

    @classmethod
    def from_cell(cls, cell: Mapping[str, Any], where: str = "suite.worlds[...]") -> World:
        """The reverse of `cell`. Raises FormatError."""
        content = built(dict[str, Any], cell, where)
        sizes = str(content.get("state_size")).split("-")
        numbers = [int(one) if one.isdecimal() else one for one in sizes]
        return built(cls, {**content, "state_size": numbers}, where)


@dataclass(frozen=True)
class RpcSuite:
    """A run. An episode is `steps` calls of each observer; `seconds` ends a world after the episode
    in which they pass. A warm-up is at least two episodes, and goes on until it is steady or
    `warmup_s` have passed. `policy_ms`: a policy of that fixed time in place of the network."""

    backends: tuple[Backend, ...]
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

    def expected_s(self, launches: Sequence[LaunchPlan]) -> float:
        """About how long these launches take."""
        total_s = 0.0
        for launch in launches:
            worlds = [World.from_cell(cell) for cell, _ in launch.cells]
            total_s += START_S[launch.variant.name]
            total_s += sum(self._world_s(launch.variant.name, world) for world in worlds)
        return total_s

    def _world_s(self, backend: str, world: World) -> float:
        calls = world.observers * self.steps
        an_episode_s = calls / CALLS_PER_S[backend]
        if self.policy_ms is not None:
            selections = self.steps if world.batch else calls
            an_episode_s += selections * self.policy_ms / 1e3
        measured_s = self.episodes * an_episode_s
        if self.seconds is not None:
            measured_s = min(measured_s, self.seconds + an_episode_s)
        return EACH_S[backend] * world.world_size + 2 * an_episode_s + measured_s

    def to_json(self) -> dict[str, Any]:
        """Plain content for the Run record."""
        return {"name": "rpc", **plain(self), "worlds": [one.cell for one in self.worlds]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RpcSuite:
        """The reverse, for going on with a stored run. Raises BadInput."""
        return stored_suite(
            cls,
            data,
            worlds=lambda stored: tuple(
                map(World.from_cell, built(list[Any], stored, "suite.worlds"))
            ),
        )


def rpc_plan(suite: RpcSuite, done: Iterable[str] = ()) -> tuple[LaunchPlan, ...]:
    """The launches in order, a backend as the variant and a world as the cell; trials whose keys
    are `done` are left out. Backends alternate within a round."""
    launches = []
    for round_, worlds in orders(suite.launches, suite.worlds, suite.seed):
        for backend in suite.backends:
            trials = [planned_trial(suite, backend, round_, world) for world in worlds]
            cells = tuple((trial.cell, (trial,)) for trial in trials)
            launches.append(LaunchPlan(VariantUsed(backend), round_, cells))
    return without(launches, done)


def planned_trial(suite: RpcSuite, backend: str, round_: int, world: World) -> PlannedTrial:
    """The trial of one world on one backend."""
    cell, count = world.cell, world.observers
    if suite.policy_ms is not None:
        cell["policy_ms"] = suite.policy_ms
    label = counted(count, "observer").replace(",", "")
    row = Row(label, "observer", count, count)
    return PlannedTrial(trial_key(backend, round_, cell, row.label), round_, backend, cell, row)


def x_of(cell: JsonObject, x_axis: str) -> str:
    """A point of the x axis, as the published form writes it: `10`, `True`, `10-20-10`."""
    return str(cell.get(x_axis, "?"))


def read_rpc(data: Mapping[str, Any], file: str, flags: Mapping[str, str]) -> RpcSuite:
    """The suite of a file, and of the flags over it: those of KEYS that were given, as text.

    Raises BadInput, which names the flag, or the file and key.
    """
    only_keys(data, ("name", "rpc"), file)
    arguments = Arguments.read({f"{file}: rpc": data.get("rpc", {})}, flags, KEYS, OPTIONAL)
    lists = [name for name in LISTS if "," in arguments.texts[name]]
    if len(lists) > 1:
        places = " and ".join(arguments.places[name] for name in lists)
        raise BadInput(
            f"{places}: only one argument may be a list, the x axis; give the others once"
        )
    x_axis = lists[0] if lists else "world_size"
    settings = arguments.values(SETTINGS)
    if "seconds" in flags and "episodes" not in flags:  # time alone ends a world
        settings["episodes"] = MOST_EPISODES
    backend = one_of(*get_args(Backend))
    return RpcSuite(
        backends=arguments.each("backend", lambda single: single.value("backend", backend)),
        worlds=arguments.each(x_axis, _read_world),
        x_axis=x_axis,
        master_addr=arguments.texts["master_addr"],
        **settings,
    )


def _read_world(arguments: Arguments) -> World:
    world = World(**arguments.values(LISTS))
    numbers = math.prod(world.state_size)
    if not 1 <= numbers <= MOST_NUMBERS:
        many = f"{numbers:,}" if numbers < 10**18 else "10^18 or more"
        place, text = arguments.places["state_size"], arguments.texts["state_size"].strip()
        raise BadInput(
            f"{place}: {text} makes a state of {many} numbers; it takes 1 to {MOST_NUMBERS:,}"
        )
    return world
