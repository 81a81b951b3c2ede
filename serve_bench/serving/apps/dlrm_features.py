"""The features of a user's candidates, and how they travel to the ranker. numpy alone, no torch.

Rule: features are a fixed function of seed, user and shape, made of integer arithmetic, so that the
same user has the same candidates in every run, on every machine, with every version of numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from .dlrm_shape import Shape

Payload = Any
"""Features as one of FORMS has them."""

Answer = Any
"""The scores of one request as they leave the ranker: a list (`plain`), or float32 as bytes."""

_GAMMA = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def features(user_id: int, shape: Shape, seed: int = 0) -> tuple[Any, Any]:
    """Make dense features (float32, in [0, 1)) and ids (int32), one row for each candidate.

    Counter-based SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): number k of a user is a mix of the
    user's own start and k times the golden gamma.
    """
    start = _mix_int(_mix_int(seed) ^ (user_id & _MASK))
    mixed = _mix_array(_steps(shape.rows_per_request, shape.columns) + np.uint64(start))
    # The upper 24 bits are exact as a float32; the upper 32 scale to an id without a division.
    dense = (mixed[:, : shape.dense_features] >> np.uint64(40)).astype(np.float32)
    dense *= np.float32(2.0**-24)
    high = mixed[:, shape.dense_features :] >> np.uint64(32)
    ids = ((high * np.uint64(shape.table_rows)) >> np.uint64(32)).astype(np.int32)
    return dense, ids


def as_lists(dense: Any, ids: Any) -> Payload:
    """Return Python lists under "dense" and "sparse", as the published app sends them."""
    return {"dense": dense.tolist(), "sparse": ids.tolist()}


def as_block(dense: Any, ids: Any) -> Payload:
    """Return bytes: row by row the dense features as float32, then the ids as int32.

    One buffer for all pickles as a string of bytes and joins with others by one copy.
    """
    block = np.empty((len(dense), dense.shape[1] + ids.shape[1]), np.int32)
    block.view(np.float32)[:, : dense.shape[1]] = dense
    block[:, dense.shape[1] :] = ids
    return block.tobytes()


def as_matrix(payloads: Sequence[bytes], columns: int) -> Any:
    """Join blocks of several requests to one int32 array (rows, columns), read-only.

    Raises ValueError on a block that is not whole rows: joined with others it would shift theirs.
    """
    for payload in payloads:
        if len(payload) % (4 * columns):
            raise ValueError(f"a request has {len(payload)} bytes; a row has {4 * columns}")
    joined = payloads[0] if len(payloads) == 1 else b"".join(payloads)
    return np.frombuffer(joined, np.int32).reshape(-1, columns)


def as_scores(answer: bytes) -> list[float]:
    """Return the scores that float32 bytes hold."""
    scores: list[float] = np.frombuffer(answer, np.float32).tolist()
    return scores


def scores_json(answer: bytes) -> bytes:
    """Write float32 bytes as {"scores": [...]}, with the 9 digits that tell any two apart."""
    scores = as_scores(answer)
    return (_template(len(scores)) % tuple(scores)).encode()


FORMS: dict[str, Callable[[Any, Any], Payload]] = {"plain": as_lists, "tuned": as_block}
"""How each ranker takes its features."""


@lru_cache(maxsize=8)
def _template(count: int) -> str:
    return f'{{"scores":[{",".join(["%.9g"] * count)}]}}'


@lru_cache(maxsize=8)
def _steps(rows: int, columns: int) -> Any:
    steps = np.arange(1, rows * columns + 1, dtype=np.uint64) * np.uint64(_GAMMA)
    steps.flags.writeable = False
    return steps.reshape(rows, columns)


def _mix_array(z: Any) -> Any:
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def _mix_int(value: int) -> int:
    z = (value + _GAMMA) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
