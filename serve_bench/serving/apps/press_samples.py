"""The way from the bytes of a press request to samples, and to what a ranker takes.

Rule: the standard library alone, since the command line imports it too, and nothing that differs
between processes or runs: crc32, never Python's own hash. A bad request is refused with one line.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from zlib import crc32

Samples = list[tuple[str, ...]]
"""The features of each sample, in the order of their names."""

MOST_SAMPLES = 1000
"""The most in a request: far above the 15 of the published test; it bounds a replica's memory."""


class NoRequest(ValueError):
    """The body is no press request. The message is one line."""


def read(body: bytes, features: Sequence[str]) -> Samples:
    """Read {"samples": [{feature: text, ...}, ...]}. Raises NoRequest on anything else."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):  # ValueError: no JSON, no UTF-8, a number without end
        raise NoRequest("the body is no JSON") from None
    samples = content.get("samples") if isinstance(content, dict) else None
    if not isinstance(samples, list) or not 1 <= len(samples) <= MOST_SAMPLES:
        raise NoRequest(f"samples: a list of 1 to {MOST_SAMPLES} is needed")
    return [_sample(number, sample, features) for number, sample in enumerate(samples)]


def _sample(number: int, sample: object, features: Sequence[str]) -> tuple[str, ...]:
    if not isinstance(sample, dict) or len(sample) != len(features):
        raise NoRequest(f"samples[{number}]: exactly {', '.join(features)} are needed")
    texts = []
    for name in features:
        text = sample.get(name)
        if not isinstance(text, str):
            raise NoRequest(f"samples[{number}].{name}: a text is needed")
        texts.append(text)
    return tuple(texts)


def hashed(
    samples: Samples, dense_features: int, table_rows: int
) -> tuple[list[list[float]], list[list[int]]]:
    """Hash each sample to dense features and ids.

    An id is the crc32 of the text in UTF-8, modulo the rows of its table. The request has no dense
    features: they are drawn from a crc32 over all texts of the sample, in [0, 1), with 24 bits,
    which are exact as a float32.
    """
    dense, ids = [], []
    for texts in samples:
        coded = [text.encode("utf-8", "surrogatepass") for text in texts]
        ids.append([crc32(code) % table_rows for code in coded])
        start = crc32(b"\0".join(coded))
        dense.append(
            [(crc32(b"%d" % place, start) >> 8) * 2.0**-24 for place in range(dense_features)]
        )
    return dense, ids
