"""A small shop in the style of Ray's documentation: a FastAPI ingress that asks a ranker.

serve-bench run examples/own_app/shop.py:app --route '/best?n=20' --option Ranker.num_replicas=1,2
"""

import math

from fastapi import FastAPI
from ray import serve
from ray.serve.handle import DeploymentHandle

api = FastAPI()


@serve.deployment(ray_actor_options={"num_cpus": 0.5}, user_config={"rounds": 20})
class Ranker:
    """A ranker of items; `rounds` in its user_config says how much work an item is."""

    def __init__(self) -> None:
        self.rounds = 1

    def reconfigure(self, config: dict[str, int]) -> None:
        self.rounds = config["rounds"]

    def rank(self, items: list[int]) -> list[int]:
        return sorted(items, key=self._score)

    def _score(self, item: int) -> float:
        return sum(math.sin(item * k) for k in range(1, self.rounds + 1))


@serve.deployment
@serve.ingress(api)
class Shop:
    """The ingress, which HTTP meets."""

    def __init__(self, ranker: DeploymentHandle) -> None:
        self.ranker = ranker

    @api.get("/best")
    async def best(self, n: int = 10) -> list[int]:
        return await self.ranker.rank.remote(list(range(n)))

    @api.post("/rank")
    async def rank(self, items: list[int]) -> list[int]:
        return await self.ranker.rank.remote(items)


app = Shop.bind(Ranker.bind())
