"""What `serve-bench rpc` is asked to measure: backends, worlds, and the one argument that is swept.

Pure. Rule: the arguments of PyTorch's benchmark keep its names and its spellings; at most one of
them is a list, and it is the x axis.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias

from msgspec import Meta

from serve_bench.core.content import Content
from serve_bench.core.errors import BadInput
from serve_bench.core.figures import counted
from serve_bench.core.plan import LaunchPlan, plan_launches, without
from serve_bench.core.result import JsonObject, VariantUsed
from serve_bench.core.schema import built
from serve_bench.core.spec import Opt, Spec
from serve_bench.core.traffic import Row

Backend: TypeAlias = Literal["torch", "ray", "serve"]
"""torch.distributed.rpc over TensorPipe; Ray actors; a Serve DeploymentHandle."""

Device: TypeAlias = Literal["auto", "cpu", "cuda"]

PUBLISHED_ARGUMENTS: Final = (
    *("world_size", "master_addr", "master_port", "batch", "state_size", "nlayers"),
    *("out_features", "output_file_path"),
)
"""Arguments of PyTorch's benchmark, in its order (serve_bench/reference/torch_rpc.json)."""

MOST_EPISODES: Final = 1_000_000
"""The limit where seconds end a world."""

MOST_NUMBERS: Final = 100_000_000
"""Limit of a state, and of the weights of a layer: 400 MB."""

_YES, _NO = ("true", "yes", "t", "y", "1"), ("false", "no", "f", "n", "0")


def _read_batch(text: str) -> bool:
    if text.lower() not in _YES + _NO:
        raise ValueError(text)
    return text.lower() in _YES


def _read_state_size(text: str) -> str:
    parts = text.split("-")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise ValueError(text)
    return "-".join(str(int(part)) for part in parts)


Seconds: TypeAlias = Annotated[float, Meta(ge=0.1, le=86_400.0)]
Steps: TypeAlias = Annotated[int, Meta(ge=1, le=MOST_EPISODES)]

#: Seconds of a start of the backend, and of each process of a world, and calls/s, on a host with 2
#: cores. They serve the estimate of time left alone.
START_S: Final = {"torch": 2.0, "ray": 5.0, "serve": 8.0}
EACH_S: Final = {"torch": 0.17, "ray": 0.6, "serve": 0.9}
CALLS_PER_S: Final = {"torch": 2500.0, "ray": 850.0, "serve": 250.0}


@dataclass(frozen=True)
class World:
    """An agent and `world_size` - 1 observers."""

    world_size: int
    batch: bool
    state_size: str
    nlayers: int
    out_features: int
    device: str  # cpu or cuda; auto until it is known
    threads: int  # of torch's operators in the agent

    @property
    def observers(self) -> int:
        """All processes but the agent."""
        return self.world_size - 1

    @property
    def batch_size(self) -> int:
        """Requests that the policy takes at once."""
        return self.observers if self.batch else 1

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions of a state."""
        return tuple(map(int, self.state_size.split("-")))


LISTS: Final = tuple(field.name for field in fields(World))
"""Arguments that may be a list: what makes a world. Where none is, world_size is the x axis."""


@dataclass(frozen=True, kw_only=True)
class RpcSpec(Spec):
    """A run of worlds; an episode is `steps` calls of each observer.

    `seconds` ends a world after the episode in which they pass. A warm-up is at least two episodes,
    and lasts until it is steady or `warmup_s` have passed. `policy_ms`: a policy of that fixed time
    in place of the network.
    """

    table: ClassVar[str] = "rpc"

    name: Literal["rpc"] = "rpc"
    world_size: Annotated[
        tuple[Annotated[int, Meta(ge=2, le=4096)], ...],
        Opt(
            "Processes: one agent, the others observers",
            why=": one agent, and at least one observer",
        ),
    ] = (10,)
    master_addr: Annotated[str, Opt("Address of torch's store", "HOST")] = "127.0.0.1"
    master_port: Annotated[
        int, Meta(ge=0, le=65535), Opt("Port of torch's store; 0: a free one")
    ] = 29501
    batch: Annotated[
        tuple[bool, ...],
        Opt(
            "True: the agent waits for all observers; False: each is served alone",
            read=_read_batch,
            takes="True or False",
        ),
    ] = (True,)
    state_size: Annotated[
        tuple[str, ...],
        Opt(
            "Shape of a state",
            "N-N-N",
            read=_read_state_size,
            takes="whole numbers joined by -, such as 10-20-10",
        ),
    ] = ("10-20-10",)
    nlayers: Annotated[
        tuple[Annotated[int, Meta(ge=1, le=1000)], ...], Opt("Linear layers of the policy")
    ] = (5,)
    out_features: Annotated[
        tuple[Annotated[int, Meta(ge=1, le=10_000)], ...], Opt("Number of actions")
    ] = (10,)
    backend: Annotated[tuple[Backend, ...], Opt("Backends: torch, ray, serve")] = ("torch",)
    episodes: Annotated[Steps, Opt("Episodes that are measured")] = 10
    steps: Annotated[Steps, Opt("Calls of each observer in an episode")] = 100
    seconds: Annotated[
        Seconds | None, Opt("Time in which episodes begin, instead of their number", "SECONDS")
    ] = None
    device: Annotated[tuple[Device, ...], Opt("Device of the agent: cpu, cuda, auto", "WORD")] = (
        "cpu",
    )
    threads: Annotated[
        tuple[Annotated[int, Meta(ge=1, le=1024)], ...],
        Opt("Threads of torch's operators in the agent"),
    ] = (1,)
    launches: Annotated[int, Meta(ge=1, le=1000), Opt("Launches: fresh starts of each backend")] = 1
    warmup_s: Annotated[
        float,
        Meta(ge=0.0, le=86_400.0),
        Opt("Longest warm-up; it ends once the rate is steady", "SECONDS"),
    ] = 3.0
    timeout_s: Annotated[Seconds, Opt("Longest time of a call", "SECONDS")] = 60.0
    policy_ms: Annotated[
        Annotated[float, Meta(ge=0.0, le=60_000.0)] | None,
        Opt("Use a policy of fixed time, to check the benchmark", "MS"),
    ] = None
    seed: Annotated[int, Meta(ge=0, le=2**31), Opt("Seed of the order of worlds")] = 1
    output_file_path: str | None = None
    sample: bool = True

    @property
    def x_axis(self) -> str:
        """The argument that is a list; world_size where none is."""
        return next((name for name in LISTS if len(getattr(self, name)) > 1), "world_size")

    @property
    def worlds(self) -> tuple[World, ...]:
        """A world for each point of the x axis."""
        values = itertools.product(*(getattr(self, name) for name in LISTS))
        return tuple(World(**dict(zip(LISTS, world, strict=True))) for world in values)

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "x_axis": self.x_axis}

    def checked(self, places: Mapping[str, str]) -> Self:
        lists = [name for name in LISTS if len(getattr(self, name)) > 1]
        if len(lists) > 1:
            named = " and ".join(places[name] for name in lists)
            alone = "only one argument may be a list, the x axis; give the others once"
            raise BadInput(f"{named}: {alone}")
        for text in self.state_size:
            numbers = math.prod(map(int, text.split("-")))
            if not 1 <= numbers <= MOST_NUMBERS:
                many = f"{numbers:,}" if numbers < 10**18 else "10^18 or more"
                makes = f"{text} makes a state of {many} numbers"
                raise BadInput(f"{places['state_size']}: {makes}; it takes 1 to {MOST_NUMBERS:,}")
        return self

    def plan(self, done: Iterable[str] = ()) -> tuple[LaunchPlan, ...]:
        """Plan the launches without the `done` keys; backends (variants) alternate in a round."""
        variants, cells = tuple(map(VariantUsed, self.backend)), [*map(self.cell, self.worlds)]
        return without(plan_launches(self.launches, variants, cells, self.seed), done)

    def cell(self, world: World) -> tuple[JsonObject, JsonObject, tuple[Row]]:
        """Return a world as a cell, as it is recorded too, with its row."""
        cell, count = asdict(world), world.observers
        cell |= {} if self.policy_ms is None else {"policy_ms": self.policy_ms}
        label = counted(count, "observer").replace(",", "")
        return cell, cell, (Row(label, "observer", count, count),)

    def expected_s(self, launches: Sequence[LaunchPlan]) -> float:
        """Estimate how long these launches take."""
        total_s = 0.0
        for launch in launches:
            backend = launch.variant.name
            worlds = [built(World, cell, "cell") for cell, _ in launch.cells]
            total_s += START_S[backend] + sum(self._world_s(backend, world) for world in worlds)
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


def x_of(cell: JsonObject, x_axis: str) -> str:
    """Return a point of the x axis as the published form writes it: `10`, `True`, `10-20-10`."""
    return str(cell.get(x_axis, "?"))


def read_rpc(content: Content, flags: Mapping[str, str], **others: Any) -> RpcSpec:
    """Read what a suite file asks for, and flags over it. Raises BadInput."""
    content.check_keys(("name", "rpc"))
    RpcSpec.check_keys(content)
    spec = RpcSpec.read(RpcSpec.add_flags(content, flags), **others)
    if "seconds" in flags and "episodes" not in flags:  # time alone ends a world
        return replace(spec, episodes=MOST_EPISODES)
    return spec
