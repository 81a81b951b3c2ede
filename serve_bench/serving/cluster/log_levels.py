"""Sets the level of Serve's own processes in a running Serve, and reads it back from each.

Rule: a level counts once the processes themselves say so, since proxies hear of it later than the
controller.
"""

from __future__ import annotations

import time
from typing import Any

from asking import ask, log_level, role_of, serve_actors, serve_client
from refusal import Refused, one_line

POLL_S = 0.02
LEVEL_TIMEOUT_S = 15.0


def set_system_log_level(level: str) -> None:
    """Sets the level of Serve's own processes, and waits until all are at it.

    With HAProxy these are its manager (as `proxy`) and the fallback proxy, which see no
    request: haproxy itself tells its lines to syslog, at a level that Serve does not change.
    """
    import ray
    from ray.serve import schema

    client: Any = serve_client()
    config: Any = getattr(schema, "LoggingConfig", None)
    if config is None or not hasattr(client, "update_global_logging_config"):
        raise Refused(f"log_level: Ray {ray.__version__} cannot change that of a running Serve")
    client.update_global_logging_config(
        config(log_level=level, enable_access_log=level in ("DEBUG", "INFO"))
    )
    wait_system_log_level(level)


def wait_system_log_level(level: str) -> dict[str, str]:
    """Until all of Serve's own processes are at this level: the controller is at once, proxies
    when they hear of it. The levels by role. Raises Refused with what is at another."""
    deadline = time.monotonic() + LEVEL_TIMEOUT_S
    while True:
        found, silent = _system_log_levels()
        wrong = [f"the {role} is at {one}" for role, one in found.items() if one != level]
        wrong += [] if "proxy" in found else ["no proxy tells its level", *silent]
        if not wrong:
            return found
        if time.monotonic() > deadline:
            raise Refused(f"log_level {level} did not take effect: {wrong[0]}", wrong[1:])
        time.sleep(POLL_S)


def _system_log_levels() -> tuple[dict[str, str], list[str]]:
    """The level in force in Serve's own processes, by role; and why others could not tell, which
    may be about to end."""
    import ray

    found, silent = {}, []
    for name, actor in serve_actors():
        role = "controller" if name.startswith("SERVE_CONTROLLER") else role_of(name)
        if role is not None and role != "replica":
            try:
                found[role] = ask(actor, log_level)
            except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError) as error:
                silent.append(f"{name}: {one_line(error)}")
    return found, silent
