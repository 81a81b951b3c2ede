"""Which of a load's requests is sent next: in turn, or drawn. Both clients ask here.

Rule: what follows depends on the load, its seed and the worker's number alone, so a load can be
repeated. What the requests are is `Request.turns`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import TypeVar

from serve_bench.core.load_spec import Load
from serve_bench.load.share import Share

_R = TypeVar("_R")


def next_turn(load: Load, share: Share, requests: Sequence[_R]) -> Callable[[], _R]:
    """A function that gives the next of `requests`, which stand for `load.request.turns`.

    Workers that cycle through paths or headers begin as far from one another as they can: one that
    follows close behind another would find in the server's caches what that one has just asked for.
    """
    if load.request.draw == "random":
        draw = random.Random(f"{load.seed}/body/{share.worker}").choice
        return lambda: draw(requests)
    apart = load.request.paths or load.request.header_sets
    first = len(requests) * share.worker // share.workers if apart else 0
    return cycle([*requests[first:], *requests[:first]]).__next__
