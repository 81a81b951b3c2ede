import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

from serve_bench.core.facts import GpuProcess, GpuReading
from serve_bench.observing.sampler import MODULE, Gpus, gpu_summary
from tests.cases import Patch


class NVMLError(Exception):
    """As NVML raises it."""


def fake(*, initialises: bool = True, shares: bool = True) -> ModuleType:
    """One device: 80 % used, 2 GB held, 1.5 GB of it by process 7."""

    def init() -> None:
        if not initialises:
            raise NVMLError("Driver Not Loaded")

    def utilization(handle: Any, since: int) -> list[Any]:
        if not shares:
            raise NVMLError("Not Supported")
        return [SimpleNamespace(pid=7, smUtil=78)]

    held = SimpleNamespace(pid=7, usedGpuMemory=1_500_000_000)
    module = ModuleType(MODULE)
    answers: dict[str, Any] = {
        "NVMLError": NVMLError,
        "nvmlInit": init,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=80),
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=2_000_000_000),
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: [held],
        "nvmlDeviceGetProcessUtilization": utilization,
    }
    module.__dict__.update(answers)
    module.__spec__ = importlib.util.spec_from_loader(MODULE, None)
    return module


def test_use_and_memory_by_device_and_process(monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, MODULE, fake())
    gpus = Gpus()
    assert gpus.why_not is None
    (device,) = gpus.read()
    assert (device.use_percent, device.memory_mb) == (80.0, 2000.0)
    assert device.processes == (GpuProcess(pid=7, memory_mb=1500.0, use_percent=78.0),)
    monkeypatch.setitem(sys.modules, MODULE, fake(shares=False))  # what it does not tell is none
    assert Gpus().read()[0].processes[0].use_percent is None


def test_without_a_driver_or_the_package_it_says_why(monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, MODULE, fake(initialises=False))
    gpus = Gpus()
    assert gpus.why_not == "NVML: Driver Not Loaded" and gpus.read() == []
    monkeypatch.delitem(sys.modules, MODULE)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert Gpus().why_not == "nvidia-ml-py is not installed"


def test_a_summary_is_of_all_readings() -> None:
    def reading(use: float | None, memory: float) -> list[GpuReading]:
        return [GpuReading(device=0, use_percent=use, memory_mb=memory, processes=())]

    (device,) = gpu_summary([reading(20.0, 100.0), reading(None, 300.0), reading(60.0, 200.0)])
    assert device.use_percent == 40.0 and device.use_percent_max == 60.0
    assert device.memory_mb_max == 300.0
    assert not [*gpu_summary([])]
