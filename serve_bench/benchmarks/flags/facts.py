"""The flags that a variant sets, as Serve's own constants say in its interpreter; no list of ours.

Rule: of combinations only those are measured that Serve takes as they are: where one flag brings
another one, it never goes without it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from serve_bench.analysis.factorial import Point, points_of
from serve_bench.benchmarks.flags.request import MOST, Factor, Factorial
from serve_bench.core.errors import BadInput
from serve_bench.core.figures import counted
from serve_bench.core.own_module import NOT_FROM_HERE
from serve_bench.core.result import VariantUsed

STANDS_FOR: Final = ("RAY_SERVE_THROUGHPUT_OPTIMIZED",)
"""Flags that do nothing but set others, which are told apart in their place."""

ASK_S: Final = 120.0

#: Prints Serve's constants under each of the environments on stdin.
_CONSTANTS: Final = (
    NOT_FROM_HERE
    + """import importlib, json, os
from ray.serve._private import constants
answers = []
for env in json.load(sys.stdin):
    for name in [name for name in os.environ if name.startswith("RAY_SERVE_")]:
        del os.environ[name]
    os.environ.update(env)
    importlib.reload(constants)
    answers.append({n: v for n, v in vars(constants).items() if n.startswith("RAY_SERVE_")
                    and isinstance(v, (bool, int, float, str))})
print(json.dumps(answers))
"""
)

Constants = Mapping[str, Any]


def factorial_of(variant: VariantUsed, own: Mapping[str, str], pairs: bool, seed: int) -> Factorial:
    """The flags of a variant and those of --env, with the combinations that can be, and no rounds
    yet. Raises BadInput."""
    wanted = {**variant.env, **own}
    off, on = _constants(variant.python, [{}, wanted])
    differ = [name for name in on if on[name] != off.get(name) and name not in STANDS_FOR]
    others = [name for name in wanted if name not in differ and name not in STANDS_FOR]
    for name in others:
        if name in on and on[name] == off.get(name):
            raise BadInput(f"--env: {name}={wanted[name]} is what Serve has anyway")
    alone = _constants(variant.python, [{name: _text(on[name])} for name in differ])
    factors = []
    for name, mine in zip(differ, alone, strict=True):
        if mine.get(name) != on[name]:  # it follows from others
            continue
        kept = {
            other: _text(off[other])
            for other in off
            if mine.get(other) != off[other] and on.get(other) == off[other]
        }
        factors.append(Factor(name, {name: wanted.get(name, _text(on[name])), **kept}))
    factors += [Factor(name, {name: wanted[name]}) for name in others]
    count = counted(len(factors), "flag")
    if len(factors) < 2:
        raise BadInput(
            f"--of, --env: {count}: two or more are told apart; name more with --env, or compare "
            "with versus"
        )
    if len(factors) > MOST:
        raise BadInput(f"--of, --env: {count} are too many; it takes 2 to {MOST}")
    whole = Factorial(tuple(factors), points_of(len(factors), seed), pairs, ())
    return replace(whole, points=_possible(whole, variant.python, on))


def _possible(whole: Factorial, python: str | None, on: Constants) -> tuple[Point, ...]:
    """The combinations in which each flag is as it is asked for."""
    envs = []
    for point in whole.points:
        some = [f.env for f, level in zip(whole.factors, point, strict=True) if level == "1"]
        envs.append({name: value for env in some for name, value in env.items()})
    kept = []
    for point, seen in zip(whole.points, _constants(python, envs), strict=True):
        levels = [
            factor.name not in seen or (seen[factor.name] == on[factor.name]) is (level == "1")
            for factor, level in zip(whole.factors, point, strict=True)
        ]
        if all(levels):
            kept.append(point)
    return tuple(kept)


def _text(value: Any) -> str:
    """A constant as its environment has it."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def _constants(python: str | None, envs: Sequence[Mapping[str, str]]) -> list[Constants]:
    """Serve's constants under each environment, as the interpreter has them. Raises BadInput."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    try:
        ran = subprocess.run(
            [python or sys.executable, "-c", _CONSTANTS],
            input=json.dumps([dict(one) for one in envs]),
            capture_output=True,
            text=True,
            timeout=ASK_S,
            check=False,
            env=env,
        )
        if ran.returncode:
            raise ValueError(ran.stderr.strip().splitlines()[-1])
        answers: list[Constants] = json.loads(ran.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        raise BadInput(f"--of: Serve's flags cannot be read: {error}") from None
    return answers
