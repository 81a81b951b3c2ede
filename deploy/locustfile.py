"""Users of the recommendation service, for locust; each checks the scores that it gets.

    locust --headless --host URL -r 800 -u 800 --processes 30 -t 2m

The published load: 800 users, all started within a second. `serve-bench recsys` drives the same
requests with a client that costs a tenth of the CPU; this file is for those who want locust's view.
"""

from __future__ import annotations

import os
import random

from locust import FastHttpUser, constant, task

CANDIDATES = int(os.environ.get("RECSYS_ROWS_PER_REQUEST") or 32)
USERS = 1_000_000


class RecsysUser(FastHttpUser):
    """Asks for the scores of a random user, and at once again."""

    wait_time = constant(0)

    @task
    def recommend(self) -> None:
        """One request. A score is a probability, and there is one for each candidate."""
        params = {"user_id": random.randrange(USERS)}
        with self.client.get("/", params=params, name="/", catch_response=True) as response:
            if response.status_code != 200:
                response.failure(f"status {response.status_code}")
                return
            scores = response.json().get("scores")
            if not isinstance(scores, list) or len(scores) != CANDIDATES:
                response.failure(f"not {CANDIDATES} scores: {str(scores)[:80]}")
            elif not all(isinstance(score, float) and 0.0 <= score <= 1.0 for score in scores):
                response.failure(f"a score is no probability: {str(scores)[:80]}")
