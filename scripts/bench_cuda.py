"""The ranker on a CUDA device against the same ranker on the CPU, and `observing/sampler.py`
against nvidia-smi.

Prints, for each batch size, the largest difference of a score between the devices and between the
rankers, and what NVML and nvidia-smi say while a ranker computes. Exits with 1 where a difference
is above TOLERANCE or the device was not seen at work, with 2 where torch has no CUDA device.
UNVERIFIED on a real GPU so far; on a CPU in CUDA's place the comparison runs.
Run: scripts/bench cuda
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np

from serve_bench.observing.sampler import Gpus
from serve_bench.serving.apps.dlrm import build, resolve_device
from serve_bench.serving.apps.dlrm_features import FORMS, features
from serve_bench.serving.apps.dlrm_shape import MOST_GRAPHS, Shape

#: A score lies in 0 to 1; float32 sums of a few hundred products differ in order between devices.
TOLERANCE = 1e-5

#: From a lone row over sizes that need padding to one beyond the published largest batch.
ROWS = (1, 31, 32, 33, 48, 100, 320, 321, 3200, 3201)

BUSY_S = 4.0


def batch(kind: str, shape: Shape, rows: int, seed: int) -> list[Any]:
    """Requests of different users with so many rows together, in the ranker's own form."""
    payloads, left, users = [], rows, itertools.count(1000 * rows)
    while left:
        dense, ids = features(next(users), shape, seed)
        taken = min(left, len(dense))
        payloads.append(FORMS[kind](dense[:taken], ids[:taken]))
        left -= taken
    return payloads


def scores(ranker: Any, kind: str, shape: Shape, rows: int, seed: int) -> Any:
    """The scores of that batch, as one array of float32."""
    answers = ranker.score(batch(kind, shape, rows, seed))
    return np.array([score for part in answers for score in part], dtype=np.float32)


def compare(shape: Shape, seed: int) -> bool:
    """Whether all four (two rankers, two devices) agree at every batch size, in drawn order twice,
    so that a graph kept from an earlier size is used again."""
    rankers = {
        (kind, device): build(kind, shape, device, seed)
        for kind in FORMS
        for device in ("cpu", "cuda")
    }
    good = True
    print("| rows | " + " | ".join(f"{kind} {device}" for kind, device in rankers) + " |")
    print("|---|" + "---|" * len(rankers))
    for rows in (*ROWS, *reversed(ROWS)):
        base = scores(rankers["plain", "cpu"], "plain", shape, rows, seed)
        cells = []
        for (kind, _), ranker in rankers.items():
            apart = float(np.abs(scores(ranker, kind, shape, rows, seed) - base).max())
            good = good and apart <= TOLERANCE
            cells.append(f"{apart:.1e}")
        print(f"| {rows} | {' | '.join(cells)} |")
    captured = rankers["tuned", "cuda"].facts()["graphs"]
    print(f"graphs captured: {captured}; at most {MOST_GRAPHS} kept")
    spread = float(np.std(scores(rankers["plain", "cpu"], "plain", shape, 3200, seed)))
    print(f"standard deviation of the scores themselves: {spread:.3f}; tolerance {TOLERANCE:g}")
    return good


def smi() -> str:
    """Use in percent and memory in MiB of each device, by nvidia-smi."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return "no nvidia-smi"
    asked = [program, "--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def at_work(shape: Shape, seed: int) -> bool:
    """Whether NVML sees the device idle before and busy while a ranker computes, beside
    nvidia-smi."""
    gpus = Gpus()
    if gpus.why_not is not None:
        print(f"NVML: {gpus.why_not}")
        return False
    ranker = build("tuned", shape, "cuda", seed)
    loaded = ranker.load(batch("tuned", shape, 3200, seed))
    time.sleep(1.5)
    idle = gpus.read()
    print(f"idle: NVML {idle}; nvidia-smi {smi()}")
    over = threading.Event()

    def work() -> None:
        import torch

        while not over.is_set():
            for _ in range(50):
                ranker.forward(loaded)
            torch.cuda.synchronize()

    worker = threading.Thread(target=work)
    worker.start()
    busy = []
    end = time.monotonic() + BUSY_S
    while time.monotonic() < end:
        time.sleep(0.5)
        busy.append(gpus.read())
        print(f"busy: NVML {busy[-1]}; nvidia-smi {smi()}")
    over.set()
    worker.join()
    gpus.close()
    use = [one["use_percent"] for reading in busy for one in reading]
    return max((one for one in use if one is not None), default=0.0) > 0.0


def main() -> int:
    """Both checks."""
    try:
        resolve_device("cuda")
    except ValueError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    shape, seed = Shape(), 1
    good = compare(shape, seed)
    seen = at_work(shape, seed)
    print(
        f"scores {'agree' if good else 'DIFFER'}; device {'seen' if seen else 'NOT SEEN'} at work"
    )
    return 0 if good and seen else 1


if __name__ == "__main__":
    sys.exit(main())
