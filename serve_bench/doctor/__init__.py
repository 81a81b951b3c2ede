"""`serve-bench doctor`: is this machine fit to measure on?

Rule: a check is a function that returns a CheckFinding. It reads, and changes nothing; what it may
not read makes it `unknown`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil

from serve_bench.doctor import machine, software
from serve_bench.doctor.finding import CheckFinding, Findings, count_tones, is_fit, verdict

__all__ = ["CheckFinding", "Findings", "count_tones", "diagnose", "is_fit", "verdict"]


def diagnose(python: str | None = None, root: Path = machine.ROOT) -> Findings:
    """Make all checks, in seconds. Raises BadInput where `python` is no interpreter."""
    checks: dict[str, Callable[[], CheckFinding]] = {
        "cores": lambda: machine.check_cores(root),
        "quota": lambda: machine.check_quota(root),
        "governor": lambda: machine.check_governor(root),
        "busy": machine.check_busy,  # before the import of Serve adds to it
        "steal": lambda: machine.check_steal(root),
        "memory": lambda: machine.check_memory(root),
        "files": machine.check_files,
        "ports": lambda: machine.check_ports(root),
        "leftovers": software.check_leftovers,
        "py-spy": software.check_py_spy,
    }
    findings = {name: _try(check) for name, check in checks.items()}
    interpreter = software.ask_interpreter(python)  # None: this one
    findings["Ray"] = _try(lambda: software.check_ray(interpreter))
    findings["HAProxy"] = _try(lambda: software.check_haproxy(interpreter))
    return findings


def _try(check: Callable[[], CheckFinding]) -> CheckFinding:
    try:
        return check()
    except (OSError, ValueError, IndexError, psutil.Error) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return CheckFinding("unknown", f"cannot be found out: {why}")
