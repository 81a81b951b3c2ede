"""A small shop on Ray Serve: an ingress with FastAPI, and a ranker behind it."""

from fastapi import FastAPI
from ray import serve
from ray.serve.handle import DeploymentHandle

PRODUCTS = range(1, 201)

api = FastAPI()


@serve.deployment(max_ongoing_requests=100)
class Ranker:
    """A ranker that puts the products in the order in which a user may like them."""

    def best(self, user: int) -> list[int]:
        return sorted(PRODUCTS, key=lambda product: (product * 31 + user * 17) % 101)[:3]


@serve.deployment(max_ongoing_requests=100)
@serve.ingress(api)
class Shop:
    """The ingress, which HTTP meets."""

    def __init__(self, ranker: DeploymentHandle) -> None:
        self._ranker = ranker

    @api.get("/")
    async def best(self, user: int = 0) -> dict:
        return {"user": user, "products": await self._ranker.best.remote(user)}


app = Shop.bind(Ranker.bind())
