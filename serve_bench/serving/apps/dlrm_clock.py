"""How long a forward takes on its device, and what the device can do at best: the measured rates
behind the physical floor. torch alone.

On CUDA times come from device events; UNVERIFIED on a real GPU so far.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

STREAM_BYTES = 256 * 1024 * 1024
"""Memory copied to measure bandwidth: far above any cache."""

MATRIX_SIDE = {"cpu": 1024, "cuda": 8192}
"""Side of the matrices multiplied to measure the peak: large enough that starting costs nothing."""

REPEATS = 7
CALLS = 2000


def threads(wanted: int | None) -> int:
    """Sets the number of threads of torch's operators; the number in force.

    Also when it stays the same: until it is set, MKL takes fewer threads for products that it finds
    small, and two rankers would not be given the same.
    """
    torch.set_num_threads(int(torch.get_num_threads()) if wanted is None else wanted)
    return int(torch.get_num_threads())


def free_bytes(device: Any) -> int:
    """Free memory of a CUDA device."""
    free, _ = torch.cuda.mem_get_info(device)
    return int(free)


def time_calls(
    device: Any, call: Callable[[Any], Any], inputs: Sequence[Any], host: bool = False
) -> list[int]:
    """Nanoseconds of each call with each of the inputs: on CUDA between device events, on a CPU and
    with `host` (for calls that wait for their result) on the host's clock."""
    if device.type == "cuda" and not host:
        return _time_by_events(device, call, inputs)
    taken = []
    for one in inputs:
        began = time.perf_counter_ns()
        call(one)
        taken.append(time.perf_counter_ns() - began)
    return taken


def _time_by_events(device: Any, call: Callable[[Any], Any], inputs: Sequence[Any]) -> list[int]:
    pairs = [
        (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in inputs
    ]
    for (began, ended), one in zip(pairs, inputs, strict=True):
        began.record()
        call(one)
        ended.record()
    torch.cuda.synchronize(device)
    return [round(began.elapsed_time(ended) * 1e6) for began, ended in pairs]


def bandwidth(device: Any) -> float:
    """Bytes read and written a second by a copy of a large array: the best of several."""
    source = torch.ones(STREAM_BYTES // 4, device=device)
    target = torch.empty_like(source)
    taken = time_calls(device, target.copy_, [source] * REPEATS)
    return 2 * STREAM_BYTES / (min(taken) / 1e9)


def peak_flops(device: Any) -> float:
    """float32 operations a second of a product of large matrices: the best of several."""
    side = MATRIX_SIDE[device.type]
    matrix = torch.ones(side, side, device=device)
    into = torch.empty_like(matrix)
    taken = time_calls(device, lambda m: torch.mm(m, m, out=into), [matrix] * REPEATS)
    return 2 * side**3 / (min(taken) / 1e9)


def launch_ns(device: Any) -> float:
    """Nanoseconds that the smallest operator takes: an addition of one number to another."""
    one = torch.ones(1, device=device)
    into = torch.empty_like(one)
    with torch.inference_mode():
        taken = time_calls(device, lambda n: torch.add(n, n, out=into), [one] * CALLS)
    return statistics.median(taken)


class _Counter(TorchDispatchMode):  # type: ignore[misc]  # torch has no types of its own
    """Counts the operators that compute; a view of memory does not."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view:
            self.count += 1
        return func(*args, **(kwargs or {}))


def operators(call: Callable[[], Any]) -> int:
    """Operators that a call has torch run. A CUDA graph runs outside of them and counts as none."""
    counter = _Counter()
    with counter:
        call()
    return counter.count
