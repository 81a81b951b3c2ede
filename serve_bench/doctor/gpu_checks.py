"""GPU, driver and torch: what is there, whether it is free, and whether torch can use it.

Rule: no GPU is no fault. torch is asked in a process of its own (model_needs.py), by the
interpreter whose Ray is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from serve_bench.analysis.fitness import Finding
from serve_bench.core.errors import BadInput
from serve_bench.core.result import VariantUsed
from serve_bench.doctor.place import Place, plural
from serve_bench.doctor.programs import said_by, where
from serve_bench.doctor.ray_checks import Interpreter
from serve_bench.observing.gpu import Gpus
from serve_bench.runner.model_needs import Torch, torch_of

BUSY_PERCENT: Final = 5.0
"""Use of an idle GPU is 0 %: what is above some noise is another program."""

HELD_SHARE: Final = 0.05
"""Memory of an idle GPU in use: the driver itself holds some hundred MB of tens of GB."""

_FIELDS: Final = "name,driver_version,memory.total,memory.used,utilization.gpu"
_DRIVER: Final = re.compile(r"Kernel Module(?: for \S+)?\s+(\d[\d.]*)")


@dataclass(frozen=True)
class Device:
    """A GPU as nvidia-smi tells it; memory in MiB, use in percent; None where it does not tell."""

    name: str
    driver: str
    total_mib: float | None
    used_mib: float | None
    use_percent: float | None


def devices_of(text: str) -> list[Device]:
    """The lines of `nvidia-smi --query-gpu`, as CSV without units."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(_FIELDS.split(",")):
            total, used, use = (_number(cell) for cell in cells[2:])
            found.append(Device(cells[0], cells[1], total, used, use))
    return found


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None  # [N/A]


def read_gpu(place: Place) -> Finding:
    """The driver by /proc, the devices by nvidia-smi."""
    told = _DRIVER.search(place.text("proc/driver/nvidia/version") or "")
    driver = told[1] if told else None
    smi = where("nvidia-smi")
    if smi is None:
        return gpu(driver, None, None, None)
    said = said_by([smi, f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"], r"^([^,\n]+),")
    gpus = Gpus()
    gpus.close()
    return gpu(driver, said.why, devices_of(said.text), gpus.why_not)


def gpu(
    driver: str | None,
    smi_failed: str | None,
    devices: Sequence[Device] | None,
    nvml_missing: str | None,
) -> Finding:
    """`devices`: None without nvidia-smi. `nvml_missing`: why use cannot be sampled."""
    if devices is None:
        if driver is None:
            use = "models run on the CPU; nothing else of serve-bench wants one"
            return Finding("GPU", "absent", "no NVIDIA driver, no nvidia-smi", use)
        value = f"driver {driver}, but no nvidia-smi to tell the devices"
        return Finding("GPU", "unknown", value, detail={"driver": driver})
    detail = {"driver": driver, "devices": [asdict(one) for one in devices]}
    if not devices:
        value = f"nvidia-smi tells no device: {smi_failed or 'it said nothing'}"
        advice = "if there is a GPU: the driver does not run, or docker lacks --gpus all"
        return Finding("GPU", "warning", value, advice, detail)
    names = sorted({one.name for one in devices})
    value = f"{len(devices)} x {', '.join(names)}, driver {devices[0].driver}"
    if any(_busy(one) for one in devices):
        advice = "another program uses it: nvidia-smi names it; wait for it to end"
        return Finding("GPU", "warning", f"{value}, in use", advice, detail)
    if nvml_missing is not None:
        advice = "its use is not sampled beside loads: pip install 'serve-bench[gpu]'"
        return Finding("GPU", "warning", f"{value}; {nvml_missing}", advice, detail)
    if any(one.use_percent is None or one.used_mib is None for one in devices):
        return Finding("GPU", "unknown", f"{value}; whether it is in use is not told", "", detail)
    return Finding("GPU", "ok", f"{value}, not in use", detail=detail)


def _busy(one: Device) -> bool:
    held = one.used_mib / one.total_mib if one.used_mib and one.total_mib else 0.0
    return (one.use_percent or 0.0) > BUSY_PERCENT or held > HELD_SHARE


def ask_torch(python: str | None) -> Torch | str:
    """The torch of an interpreter, loaded there for its devices, which takes seconds; or why it
    does not load."""
    try:
        return torch_of(VariantUsed("doctor", python=python))
    except BadInput as error:
        said = str(error).removeprefix(f"variants.doctor: python {python}: ")
        return said.removeprefix("torch cannot be used: ")


def read_torch(found: Interpreter, told: Torch | str, has_gpu: bool) -> Finding:
    """What `ask_torch` told, judged."""
    if isinstance(told, str):
        return torch(found.versions["torch"], told, None, (), has_gpu)
    return torch(told.version, None, told.built_for, [name for name, _ in told.devices], has_gpu)


def torch(
    version: str | None,
    broken: str | None,
    built_for: str | None,
    devices: Sequence[str],
    has_gpu: bool,
) -> Finding:
    """`broken`: why it does not load; `devices`: the GPUs that it can use."""
    if version is None:
        use = "for recsys, press, ranker and rpc: pip install 'serve-bench[torch]'"
        return Finding("torch", "absent", "not installed", use)
    detail = {"version": version, "built_for_cuda": built_for, "devices": list(devices)}
    if broken is not None:
        advice = "recsys, press, ranker and rpc need it: pip install --force-reinstall torch"
        return Finding("torch", "warning", f"{version} does not load: {broken}", advice, detail)
    value = f"{version}, built {f'for CUDA {built_for}' if built_for else 'without CUDA'}"
    if devices:
        return Finding("torch", "ok", f"{value}, can use {plural(len(devices), 'GPU')}", "", detail)
    if has_gpu:
        advice = "models would run on the CPU: take a torch whose CUDA the driver supports "
        advice += "(nvidia-smi tells it), and see CUDA_VISIBLE_DEVICES"
        return Finding("torch", "warning", f"{value}, finds no GPU", advice, detail)
    return Finding("torch", "ok", f"{value}; it loads, models run on the CPU", "", detail)
