"""GPU use by NVML, if the package nvidia-ml-py and a driver are there; else nothing, and why.

Rule: never a reason for a run to fail. A figure that a device does not give is None.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Sequence
from typing import Any, Final

MODULE: Final = "pynvml"  # the module of nvidia-ml-py


class Gpus:
    """The devices of this host. Making one is cheap where there is none: see `why_not`."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._devices: list[Any] = []
        self._since_us = 0
        self.why_not: str | None = None
        if importlib.util.find_spec(MODULE) is None:
            self.why_not = "nvidia-ml-py is not installed"
            return
        nvml = importlib.import_module(MODULE)
        try:
            nvml.nvmlInit()
            count = nvml.nvmlDeviceGetCount()
            self._devices = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        except nvml.NVMLError as error:
            self.why_not = f"NVML: {error}"
            return
        self._nvml = nvml
        self._since_us = time.time_ns() // 1000

    def read(self) -> list[dict[str, Any]]:
        """For each device: use in percent of the last interval, memory, and its processes."""
        return [self._device(index, handle) for index, handle in enumerate(self._devices)]

    def close(self) -> None:
        """Lets NVML go."""
        if self._nvml is not None:
            self._nvml.nvmlShutdown()
            self._nvml = None
            self._devices = []

    def _device(self, index: int, handle: Any) -> dict[str, Any]:
        nvml = self._nvml
        rates = self._ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        running = self._ask(nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
        shares = self._ask(nvml.nvmlDeviceGetProcessUtilization, handle, self._since_us) or []
        by_pid = {int(share.pid): float(share.smUtil) for share in shares}
        return {
            "device": index,
            "use_percent": None if rates is None else float(rates.gpu),
            "memory_mb": None if memory is None else round(memory.used / 1e6, 1),
            "processes": [
                {
                    "pid": int(process.pid),
                    "memory_mb": None
                    if process.usedGpuMemory is None
                    else round(process.usedGpuMemory / 1e6, 1),
                    "use_percent": by_pid.get(int(process.pid)),
                }
                for process in running
            ],
        }

    def _ask(self, question: Any, *arguments: Any) -> Any:
        """The answer, or None where the device or the driver does not know this question."""
        try:
            return question(*arguments)
        except self._nvml.NVMLError:
            return None


def gpu_summary(readings: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Mean and highest use and memory of each device over readings; its processes at the last."""
    if not readings:
        return []
    out = []
    for at, last in enumerate(readings[-1]):
        every = [reading[at] for reading in readings if at < len(reading)]
        used = [one["use_percent"] for one in every if one["use_percent"] is not None]
        held = [one["memory_mb"] for one in every if one["memory_mb"] is not None]
        out.append(
            {
                "device": last["device"],
                "use_percent": round(sum(used) / len(used), 1) if used else None,
                "use_percent_max": max(used, default=None),
                "memory_mb_max": max(held, default=None),
                "processes": last["processes"],
            }
        )
    return out
