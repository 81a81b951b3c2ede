"""A stand-in of an OpenAI-compatible engine with known timing, on a CPU.

The first token comes after `first_ms`, each further one after `gap_ms`. `slots` requests are
answered at a time, the others wait, as in the batch of an engine.

serve run examples.chat.stand_in:app
serve-bench load http://127.0.0.1:8000 --openai --model stand-in -c 8
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, StreamingResponse
from ray import serve

api = FastAPI()


def event(content: dict[str, Any]) -> str:
    """Format a server-sent event."""
    return f"data: {json.dumps(content)}\n\n"


def chunk(delta: dict[str, str], reason: str | None = None) -> str:
    """Format a chunk of a chat completion."""
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})


@serve.deployment(
    max_ongoing_requests=1000, user_config={"first_ms": 50.0, "gap_ms": 10.0, "slots": 64}
)
@serve.ingress(api)
class Engine:
    """An engine that answers chat completions with as many tokens as are asked for."""

    def reconfigure(self, config: dict[str, float]) -> None:
        self.first_s, self.gap_s = config["first_ms"] / 1e3, config["gap_ms"] / 1e3
        self.slots = asyncio.Semaphore(int(config["slots"]))

    @api.post("/v1/chat/completions", response_model=None)
    async def complete(self, request: dict[str, Any]) -> StreamingResponse | JSONResponse:
        if not request.get("stream"):
            return JSONResponse({"error": {"message": "stream must be true"}}, 400)
        return StreamingResponse(self.tokens(request), media_type="text/event-stream")

    async def tokens(self, request: dict[str, Any]) -> AsyncIterator[str]:
        """Stream an answer, each token at its own due time: a late one delays no other."""
        most = int(request.get("max_tokens", 100))
        prompt = sum(len(message["content"].split()) for message in request["messages"])
        yield chunk({"role": "assistant", "content": ""})
        async with self.slots:
            clock = asyncio.get_running_loop()
            begin = clock.time() + self.first_s
            for number in range(most):
                await asyncio.sleep(begin + number * self.gap_s - clock.time())
                yield chunk({"content": "token "})
        yield chunk({}, "length")
        usage = {"prompt_tokens": prompt, "completion_tokens": most, "total_tokens": prompt + most}
        yield event({"choices": [], "usage": usage})
        yield "data: [DONE]\n\n"


app = Engine.bind()
