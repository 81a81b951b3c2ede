"""A shop that asks another service for a price: as it was written first."""

import time

from ray import serve


def ask_price() -> int:
    """Ask another service, which answers after 20 ms."""
    time.sleep(0.02)
    return 42


@serve.deployment(max_ongoing_requests=100)
class Shop:
    async def __call__(self, request) -> str:
        return f"{ask_price()} EUR"


app = Shop.bind()
