"""The same shop, whose event loop answers others while a price is on its way."""

import asyncio

from ray import serve


async def ask_price() -> int:
    """Ask the same service with `await`; it still takes 20 ms."""
    await asyncio.sleep(0.02)
    return 42


@serve.deployment(max_ongoing_requests=100)
class Shop:
    async def __call__(self, request) -> str:
        return f"{await ask_price()} EUR"


app = Shop.bind()
