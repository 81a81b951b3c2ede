"""Users of the recommendation service, for locust; each checks the scores that it gets.

    locust --headless --host URL -r 800 -u 800 --processes 30 -t 2m

The published load: 800 users, all started within a second. `serve-bench load` drives the same
service with a client that costs a tenth of the CPU; this file is for those who want locust's view.
"""

from __future__ import annotations

import os
import random
from typing import Any

from locust import FastHttpUser, constant, task

CANDIDATES = int(os.environ.get("RECSYS_ROWS_PER_REQUEST") or 32)
USERS = 1_000_000


def fault(response: Any) -> str | None:
    """Say what is wrong with an answer, which has a probability for each candidate; or None."""
    if response.status_code != 200:
        return f"status {response.status_code}"
    try:
        answer = response.json()
    except ValueError:
        return f"not JSON: {str(response.text)[:80]}"
    scores = answer.get("scores") if isinstance(answer, dict) else None
    if not isinstance(scores, list) or len(scores) != CANDIDATES:
        return f"not {CANDIDATES} scores: {str(answer)[:80]}"
    if not all(isinstance(score, float) and 0.0 <= score <= 1.0 for score in scores):
        return f"a score is no probability: {str(scores)[:80]}"
    return None


class RecsysUser(FastHttpUser):
    """A user who asks for the scores of a random user, again and again."""

    wait_time = constant(0)

    @task
    def recommend(self) -> None:
        """Send one request; a wrong answer is a failure."""
        params = {"user_id": random.randrange(USERS)}
        with self.client.get("/", params=params, name="/", catch_response=True) as response:
            wrong = fault(response)
            if wrong is not None:
                response.failure(wrong)
