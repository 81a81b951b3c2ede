import contextvars
import os
import sys
from pathlib import Path

import pytest

from serve_bench.core import marks as kept
from serve_bench.core.errors import BadInput
from serve_bench.core.result import VariantUsed
from serve_bench.serving.apps import haproxy_marks, marks
from serve_bench.serving.launch_spec import check_tracing
from tests.places import execute, program


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    assert (marks.FOLDER, marks.HEADER_BYTES) == (kept.FOLDER, kept.HEADER_BYTES)
    assert marks.SLOT.format == kept.SLOT.format
    assert set(marks.SPANS.values()) <= set(kept.KINDS)
    assert kept.EXPORTER == "marks:exporter" and callable(marks.exporter)
    ring = marks.Ring(str(tmp_path))
    for at in range(3):
        ring.add((0xAB << 120, 5, at), at, at + 10, "replica", "Front" * 20)
    read = kept.marks_of((tmp_path / str(os.getpid())).read_bytes())
    assert read.lost == 0 and [mark.parent for mark in read.marks] == ["", f"{1:016x}", f"{2:016x}"]
    (first, *_) = read.marks
    assert first.trace == "ab" + 30 * "0" and first.span == f"{5:016x}"
    assert (first.begin_ns, first.end_ns, first.kind) == (0, 10, "replica")
    assert first.name == ("Front" * 20)[:64]


def test_a_full_ring_loses_the_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "SLOTS", 4)
    ring = marks.Ring(str(tmp_path))
    for at in range(7):
        ring.add((1, 1, 0), at, at, "proxy", "")
    monkeypatch.setenv(marks.FOLDER, str(tmp_path / "none"))  # without a folder nothing is marked
    assert marks.exporter() == []
    monkeypatch.delenv(marks.FOLDER)
    assert marks.exporter() == []
    read = kept.marks_of((tmp_path / str(os.getpid())).read_bytes())
    assert read.lost == 3 and sorted(mark.begin_ns for mark in read.marks) == [3, 4, 5, 6]


def test_a_span_whatever_the_time_of_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    provider = sdk.TracerProvider()
    provider.add_span_processor(marks._processor(marks.Ring(str(tmp_path))))
    tracer = provider.get_tracer("test")
    before = marks.perf()
    with tracer.start_as_current_span("replica_handle_request Front __call__"):
        within = marks.perf()
        monkeypatch.setattr("time.time_ns", lambda: 0)  # the clock is set back
        with tracer.start_as_current_span("work of the app"):
            pass
    (mark,) = kept.marks_of((tmp_path / str(os.getpid())).read_bytes()).marks
    assert before <= mark.begin_ns <= within <= mark.end_ns <= marks.perf()
    assert (mark.kind, mark.name, mark.parent) == ("replica", "Front", "")


def test_a_span_of_the_app_parts_no_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FastAPI makes one that begins anew from the headers, beside that of Serve."""
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    serve = pytest.importorskip("ray.serve._private.tracing_utils")
    ring, provider = marks.Ring(str(tmp_path)), sdk.TracerProvider()
    provider.add_span_processor(marks._processor(ring))
    monkeypatch.setattr(serve, "_tracing_enabled", True)
    monkeypatch.setattr(serve, "_tracer", provider.get_tracer("serve"))
    manager = serve.TraceContextManager
    monkeypatch.setattr(manager, "__enter__", manager.__enter__)  # put back after the test
    marker = marks.Marker(ring)
    marks._skip_others(marker)
    client_id = "cd" * 8
    headers = serve.extract_propagated_context({"traceparent": f"00-{'ab' * 16}-{client_id}-01"})

    def answer() -> None:
        with manager("replica_handle_request Front __call__", trace_context=headers):
            serve.set_trace_context(headers)
            app = provider.get_tracer("app")
            with app.start_as_current_span("GET /", headers), manager("route_to_replica"):
                marker.add(marker.span(), 1, 2, "send")

    contextvars.Context().run(answer)
    send, route, replica = kept.marks_of((tmp_path / str(os.getpid())).read_bytes()).marks
    assert [mark.kind for mark in (send, route, replica)] == ["send", "route", "replica"]
    assert (send.parent, route.parent, replica.parent) == (route.span, replica.span, client_id)
    assert contextvars.Context().run(marker.span) is None


def test_an_interpreter_that_cannot_trace_is_refused(tmp_path: Path) -> None:
    """One whose Ray has no tracing, and one without OpenTelemetry."""
    check_tracing(VariantUsed("own", {}))
    ray = tmp_path / "site" / "ray"
    (ray / "serve" / "_private").mkdir(parents=True)
    (ray / "__init__.py").touch()
    start = f'PYTHONPATH={tmp_path}/site exec {sys.executable} -S "$@"'
    python = program(tmp_path / "python", start)
    with pytest.raises(BadInput, match="--trace: variant old: its Ray has no tracing"):
        check_tracing(VariantUsed("old", python=str(python)))
    (ray / "serve" / "_private" / "tracing_utils.py").touch()
    with pytest.raises(BadInput, match="variant old: tracing needs OpenTelemetry: pip install"):
        check_tracing(VariantUsed("old", python=str(python)))


CONFIG = """global
    maxconn 100
frontend http_frontend
    bind 127.0.0.1:8000
    log global
"""


def started(tmp_path: Path, config: str) -> str:
    """Read the configuration that HAProxy gets, by the script that Ray starts in its place."""
    binary = program(tmp_path / "real", 'echo "$1 $2 $4"\ncat "$3"')
    file = tmp_path / "haproxy.cfg"
    file.write_text(config)
    words = (sys.executable, haproxy_marks.__file__, binary, tmp_path / "log")
    done = execute(*words, "-db", "-f", file, "-dR", check=True)
    first, _, text = done.stdout.partition("\n")
    assert first == "-db -f -dR"
    return text


def test_haproxy_has_lines_for_traced_requests_behind_its_bind(tmp_path: Path) -> None:
    lines = started(tmp_path, CONFIG).splitlines()
    at = lines.index("    bind 127.0.0.1:8000")
    assert lines[:at] == CONFIG.splitlines()[:at] and lines[-1] == "    log global"
    assert any("log fd@" in line and "{" not in line for line in lines[at:])
    assert (tmp_path / "log").read_text() == ""
    other = CONFIG.replace("http_frontend", "web")  # of another shape: as it is
    assert started(tmp_path, other) == other
