"""Requests to an OpenAI-compatible service: chat completions of drawn lengths. Pure.

A prompt is of common English words, each about a token for the vocabularies in use; how many tokens
it has is for the service to say (`usage`), and is reported from there.
"""

from __future__ import annotations

import functools
import json
import random
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from serve_bench.core.request_spec import Request, require

PROMPTS: Final = 1000
"""Different bodies of a load, requested in turn; fewer where they have more than MOST_WORDS."""

MOST_WORDS: Final = 5_000_000
"""Of all prompts together: some 30 MB, which each load worker holds."""

MOST_TOKENS: Final = 1_000_000

_WORDS: Final = tuple(
    """time year people way day man thing woman life child world school state family student group
    country problem hand part place case week company system program question work government
    number night point home water room mother area money story fact month lot right study book eye
    job word business issue side kind head house service friend father power hour game line end
    member law car city community name president team minute idea kid body information back parent
    face others level office door health person art war history party result change morning reason
    research girl guy moment air teacher force education""".split()
)


@dataclass(frozen=True)
class Lengths:
    """Normally distributed lengths in tokens, at least 1."""

    mean: float
    std: float = 0.0

    def draw(self, source: random.Random) -> int:
        """Draw a length, in tokens."""
        return min(MOST_TOKENS, max(1, round(source.gauss(self.mean, self.std))))


LENGTHS: Final = f"MEAN or MEAN,STD in tokens, as 200,50, the mean from 1 to {MOST_TOKENS:,}"
"""What a refusal of lengths says."""


def read_lengths(text: str) -> Lengths:
    """Parse `200` or `200,50`, the mean and the standard deviation. Raises ValueError."""
    numbers = [float(part) for part in text.split(",") if text.isascii()]
    if len(numbers) not in (1, 2) or not (
        1 <= numbers[0] <= MOST_TOKENS and 0 <= numbers[-1] <= MOST_TOKENS
    ):
        raise ValueError(text)
    return Lengths(*numbers)


def chat_url(url: str) -> str:
    """Return the address (or path) of a service's chat completions.

    They lie below `/v1`, which is added where there is no path; another address stays as it is."""
    parts = urlsplit(url)
    bare = parts.path.rstrip("/") or "/v1"
    below = parts._replace(path=f"{bare}/chat/completions")
    return urlunsplit(below) if bare.endswith("/v1") else url


@dataclass(frozen=True)
class Completions:
    """Requests for chat completions of a model, with drawn lengths of prompts and of answers."""

    model: str
    prompt: Lengths
    answer: Lengths  # the longest
    seed: int = 1

    def bodies(self, most: int = PROMPTS) -> tuple[bytes, ...]:
        """Make at most `most` JSON bodies, always the same."""
        return _draw_bodies(self, min(most, PROMPTS))


@functools.lru_cache(maxsize=2)  # of a row and its deploy; each may be of 30 MB
def _draw_bodies(kind: Completions, most: int) -> tuple[bytes, ...]:
    source, words, bodies = random.Random(f"{kind.seed}/chat"), 0, list[bytes]()
    while len(bodies) < most and words < MOST_WORDS:
        length, answer = kind.prompt.draw(source), kind.answer.draw(source)
        words += length
        text = " ".join(source.choices(_WORDS, k=length))
        body = {
            "model": kind.model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": answer,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        bodies.append(json.dumps(body).encode())
    return tuple(bodies)


def check_bodies(request: Request) -> None:
    """Raise SpecError unless each body asks for a stream."""
    for number, body in enumerate(request.all_bodies, 1):
        try:
            content = json.loads(body)
        except ValueError:
            content = None
        streams = isinstance(content, dict) and content.get("stream") is True
        require(streams, f'openai: body {number} is no JSON object with "stream": true')
