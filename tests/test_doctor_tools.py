"""Programs, libraries, rights, GPU and torch: each check in each of its states."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from serve_bench.core.errors import BadInput
from serve_bench.doctor import place as programs
from serve_bench.doctor import tool_checks
from serve_bench.doctor import tool_checks as gpu_checks
from serve_bench.doctor.place import Place
from serve_bench.doctor.tool_checks import Device
from serve_bench.observing.profiler import PerfUnusable, ProfileFailed
from serve_bench.runner.model_needs import Torch
from tests.test_doctor_ray import WHOLE, program
from tests.test_host import write

#: What each program says of its version, as it was seen.
SAID = {
    "wrk": "wrk debian/4.1.0-3+b2 [epoll] Copyright (C) 2012 Will Glozer",
    "ab": "This is ApacheBench, Version 2.3 <$Revision$>",
    "locust": "locust 2.32.4 from /lib/locust (Python 3.11.7, OpenSSL 3.0.13)",
    "oha": "oha 1.4.7",
}
VERSION = {"wrk": "4.1.0-3+b2", "ab": "2.3", "locust": "2.32.4", "oha": "1.4.7"}


@pytest.mark.process
@pytest.mark.parametrize("words", tool_checks.PROGRAMS, ids=lambda words: words[0])
def test_a_program_in_each_state(
    words: tuple[str, str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = words[0]
    monkeypatch.setattr(programs, "where", lambda name: None)
    monkeypatch.setattr(tool_checks, "where", lambda name: None)
    assert tool_checks.program(*words).status == "absent"
    path = program(tmp_path, name, f"cat <<'END'\n{SAID[name]}\nEND\nexit 1")  # as wrk does
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
    assert programs.said_by([str(tmp_path / "none")], "x").why == "no such file or directory"
    monkeypatch.setattr(programs, "TIMEOUT_S", 0.05)
    assert "no answer" in programs.said_by(["sleep", "5"], "x").why
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


H100 = Device("NVIDIA H100 80GB HBM3", "550.54.15", 81559.0, 4.0, 0.0)


def test_what_nvidia_smi_tells_is_read() -> None:
    text = "NVIDIA H100 80GB HBM3, 550.54.15, 81559, 4, 0\nOther, 550.54.15, [N/A], [N/A], [N/A]\n"
    assert gpu_checks.devices_of(text) == [H100, Device("Other", "550.54.15", None, None, None)]
    assert gpu_checks.devices_of("No devices were found\n") == []


@pytest.mark.parametrize(
    ("driver", "failed", "devices", "nvml", "status", "said"),
    [
        (None, None, None, None, "absent", "no NVIDIA driver"),
        ("550.54.15", None, None, None, "unknown", "no nvidia-smi"),
        ("550.54.15", "No devices were found", [], None, "warning", "No devices were found"),
        (None, "", [H100], None, "ok", "1 x NVIDIA H100 80GB HBM3, driver 550.54.15, not in use"),
        (None, "", [H100, H100], "nvidia-ml-py is not installed", "warning", "2 x NVIDIA H100"),
        (None, "", [Device("A", "1", 80.0, 40.0, 0.0)], None, "warning", "driver 1, in use"),
        (None, "", [Device("A", "1", 80.0, 0.0, 99.0)], None, "warning", "driver 1, in use"),
        (None, "", [Device("A", "1", None, None, None)], None, "unknown", "is not told"),
    ],
)
def test_gpu(
    driver: str | None,
    failed: str | None,
    devices: list[Device] | None,
    nvml: str | None,
    status: str,
    said: str,
) -> None:
    found = gpu_checks.gpu(driver, failed, devices, nvml)
    assert found.status == status and said in found.value


@pytest.mark.parametrize(
    "line",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build",
    ],
)
def test_the_driver_is_read(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_checks, "where", lambda name: None)
    write(tmp_path, "proc/driver/nvidia/version", line)
    assert gpu_checks.read_gpu(Place(root=tmp_path)).value.startswith("driver 550.54.15, but")


@pytest.mark.process
def test_nvidia_smi_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(tmp_path, "nvidia-smi", "echo 'NVIDIA H100, 550.54.15, 81559, 4, 0'")
    monkeypatch.setattr(gpu_checks, "where", lambda name: path)
    assert gpu_checks.read_gpu(Place(root=tmp_path)).detail["devices"][0]["total_mib"] == 81559.0
    program(tmp_path, "nvidia-smi", "echo NVIDIA-SMI has failed; exit 9")
    found = gpu_checks.read_gpu(Place(root=tmp_path))
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
    found = gpu_checks.read_torch(
        WHOLE.__class__("p", "3", "C", False, {"torch": "2.15"}, None, None), told, has_gpu
    )
    assert found.status == status and said in found.value


def test_no_torch_is_no_fault() -> None:
    assert gpu_checks.torch(None, None, None, (), False).status == "absent"


@pytest.mark.process
def test_why_torch_does_not_load_is_told_without_our_words(tmp_path: Path) -> None:
    path = program(tmp_path, "python", "echo OSError: libcudart.so >&2; exit 1")
    assert gpu_checks.ask_torch(path) == "OSError: libcudart.so"
    path = program(tmp_path, "python2", "echo hello")
    assert gpu_checks.ask_torch(path) == "is no Python: asked for its torch, it told nothing"
