"""What a DLRM ranker needs and whether this host has it: torch, the device, memory for the tables.

Rule: everything is checked before the first start. What does not fit is refused with a way out,
never made smaller silently. A separate process reads the version and devices of torch, under the
interpreter of each variant, where the replicas will run.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from serve_bench.core.app_spec import AppSpec
from serve_bench.core.axes import MODEL_APPS, Value
from serve_bench.core.errors import BadInput
from serve_bench.core.own_module import NOT_FROM_HERE
from serve_bench.core.plan import Suite
from serve_bench.core.result import VariantUsed
from serve_bench.observing.host import free_memory_bytes
from serve_bench.serving.apps.dlrm_shape import Shape

BASE_BYTES: Final = 1_300_000_000  # Ray's and Serve's own processes, with one node

RANKER_BYTES: Final = 520_000_000
"""A ranker replica without its tables: torch, its threads, batches. Measured as proportional memory
on a CPU: 508 to 513 MB."""

REPLICA_BYTES: Final = 95_000_000
"""A replica without torch: 86 to 94 MB of proportional memory each, with 1 to 32 of them."""

GPU_RANKER_BYTES: Final = 1_500_000_000
"""GPU memory of a ranker without its tables: CUDA's context, libraries and batches. An
estimate: no GPU was at hand."""

PROBE_TIMEOUT_S: Final = 120.0

_PROBE: Final = (
    NOT_FROM_HERE
    + """
import json, torch
cuda = torch.cuda.is_available()
devices = range(torch.cuda.device_count()) if cuda else ()
print(json.dumps({
    "version": torch.__version__,
    "built_for": torch.version.cuda,
    "devices": [[torch.cuda.get_device_name(i), torch.cuda.mem_get_info(i)[0]] for i in devices],
}))
"""
)


@dataclass(frozen=True)
class Torch:
    """The torch of an interpreter."""

    version: str
    built_for: str | None  # its CUDA, None without
    devices: tuple[tuple[str, int], ...]  # name and free bytes of each usable GPU


def torch_of(variant: VariantUsed) -> Torch:
    """Return the torch of the variant's interpreter. BadInput says what to install, and where."""
    python = variant.python or sys.executable
    where = f"variants.{variant.name}: python {python}: " if variant.python else ""
    try:
        answer = _probe(python)
    except OSError as error:
        raise BadInput(f"{where}{(error.strerror or 'cannot be run').lower()}") from None
    except subprocess.TimeoutExpired:
        raise BadInput(f"{where}torch gave no answer in {PROBE_TIMEOUT_S:.0f} s") from None
    if answer.returncode != 0:
        if "No module named 'torch'" in answer.stderr:
            raise BadInput(f"{where}torch is not installed: pip install torch numpy")
        last = (answer.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise BadInput(f"{where}torch cannot be used: {last}")
    try:
        content: Mapping[str, Any] = json.loads(answer.stdout.strip().splitlines()[-1])
        devices = tuple((str(name), int(free)) for name, free in content["devices"])
        return Torch(str(content["version"]), content["built_for"], devices)
    except (IndexError, KeyError, TypeError, ValueError):
        raise BadInput(f"{where}is no Python: asked for its torch, it told nothing") from None


@functools.cache  # variants mostly share an interpreter, and torch takes seconds to load
def _probe(python: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-c", _PROBE], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
    )


def with_device(suite: Suite) -> Suite:
    """Return the suite with the device that "auto" means here, after all checks.

    An app without a model stays as it is. Raises BadInput.
    """
    if suite.app.name not in MODEL_APPS:
        return suite
    for cell in suite.cells:
        shape_of(cell)
    torches = {variant.name: torch_of(variant) for variant in suite.variants}
    cells = tuple({**cell, "device": _device(cell, torches)} for cell in suite.cells)
    for cell in cells:
        if cell["device"] == "cuda":
            for torch in torches.values():
                check_gpus(suite, cell, torch)
        check_memory(suite, cell, free_memory_bytes())
    return replace(suite, cells=cells)


def shape_of(cell: Mapping[str, Value]) -> Shape:
    """Return the shape of a cell's model. BadInput names the flag that is wrong."""
    try:
        return Shape.from_args(cell)
    except ValueError as error:
        name, _, rest = str(error).partition(":")
        raise BadInput(f"--{name.replace('_', '-')}:{rest}") from None


def _device(cell: Mapping[str, Value], torches: Mapping[str, Torch]) -> str:
    """Return the device of a cell, cpu or cuda. Raises BadInput."""
    device = str(cell["device"])
    without = [name for name, torch in torches.items() if not torch.devices]
    if device == "cuda" and without:
        built = torches[without[0]].built_for
        why = "torch finds no CUDA device" if built else "torch is built without CUDA"
        raise BadInput(f"--device cuda: {why}; it takes auto or cpu here")
    if device == "auto" and 0 < len(without) < len(torches):
        raise BadInput(
            f"--device auto: variant {without[0]} has no CUDA and others have; name cpu or cuda"
        )
    return "cpu" if device == "cpu" or without else "cuda"


def check_gpus(suite: Suite, cell: Mapping[str, Value], torch: Torch) -> None:
    """Raise BadInput when there are too few GPUs for the replicas, or too little memory on them."""
    replicas, fraction = int(cell["num_replicas"]), float(cell["gpu_fraction"])
    a_gpu = int(1 / fraction + 1e-9)  # replicas that fit on one: Ray splits no replica over two
    needed = -(-replicas // a_gpu)
    have = len(torch.devices)
    if needed > have:
        share = 1 / -(-replicas // have)
        raise BadInput(
            f"--gpu-fraction: {replicas} ranker replicas of {fraction:g} GPU each need {needed} "
            f"GPUs, this host has {have}; try --gpu-fraction {share:.4g}, or fewer replicas"
        )
    tables = shape_of(cell).tables_bytes
    together = min(replicas, a_gpu)
    wanted = together * (tables + GPU_RANKER_BYTES)
    free = min(free for _, free in torch.devices)
    if wanted > free:
        raise BadInput(
            f"--table-rows: GPU memory: {together} ranker replicas on one GPU take about "
            f"{wanted / 1e9:.2f} GB ({tables / 1e9:.2f} GB of tables each), {free / 1e9:.2f} GB is "
            "free; try smaller tables, fewer replicas, or a larger --gpu-fraction"
        )


def needed_bytes(app: AppSpec, cell: Mapping[str, Value]) -> int:
    """Estimate the memory of the replicas of a cell, without Ray's and Serve's processes."""
    replicas = app.replicas(cell) * REPLICA_BYTES
    if app.name not in MODEL_APPS:
        return replicas
    more = shape_of(cell).tables_bytes + RANKER_BYTES - REPLICA_BYTES
    return replicas + int(cell["num_replicas"]) * more


def check_memory(suite: Suite, cell: Mapping[str, Value], free_bytes: int) -> None:
    """Raise BadInput when the tables of all replicas of a cell do not fit in memory."""
    rankers, tables = int(cell["num_replicas"]), shape_of(cell).tables_bytes
    wanted = needed_bytes(suite.app, cell)
    if wanted <= free_bytes:
        return
    fit = int(free_bytes / (wanted / rankers))
    raise BadInput(
        f"memory: {rankers} ranker replicas take about {wanted / 1e9:.1f} GB "
        f"({tables / 1e9:.2f} GB of tables each), {free_bytes / 1e9:.1f} GB is free; "
        f"try at most {fit} replica{'' if fit == 1 else 's'}, or smaller tables (--table-rows)"
        if fit
        else f"--table-rows: memory: a ranker replica takes about {wanted / rankers / 1e9:.1f} GB "
        f"({tables / 1e9:.2f} GB of tables), {free_bytes / 1e9:.1f} GB is free; try smaller tables"
    )
