"""Is the shop right, and is it as fast as it was? One cluster for both tests."""

import json
import urllib.request


def test_the_best_products_come_first(serve_target):
    url = serve_target.deploy("app.py:app")
    with urllib.request.urlopen(f"{url}/?user=7", timeout=10) as answer:
        assert json.load(answer) == {"user": 7, "products": [32, 133, 19]}


def test_speed(serve_benchmark):
    result = serve_benchmark("app.py:app", "raw:8", route="/?user=7", requests=100, rounds=5)
    assert result.replicas == {"Ranker": 1, "Shop": 1}
    assert result.p99_ms < 1000  # what no user would wait for, on any machine
