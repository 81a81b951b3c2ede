"""The shop as a builder makes it from its arguments.

serve-bench run examples/own_app/built.py:build --arg rounds=20,2000 --route /best
"""

from ray.serve import Application
from shop import Ranker, Shop


def build(args: dict[str, str]) -> Application:
    """Build the shop; `rounds` says how much work an item is."""
    config = {"rounds": int(args.get("rounds", 20))}
    return Shop.bind(Ranker.options(user_config=config).bind())
