"""`serve-bench doctor`: is this machine fit to measure on?"""

from __future__ import annotations

import json
import sys
from typing import Final

import typer

from serve_bench.cli.machine import DoctorOptions
from serve_bench.core.figures import counted
from serve_bench.doctor import Findings, count_tones, diagnose, is_fit, verdict
from serve_bench.report.columns import wrapped
from serve_bench.report.terminal import terminal

COLORS: Final = {"ok": "32", "warning": "33", "failure": "31;1", "unknown": "2"}


def format_text(findings: Findings, *, width: int = 80, color: bool = False) -> str:
    """Write a line for each check with what to do below it, and the verdict at the end.

    A tone is a word first; color only repeats it. Paths and commands are not broken: they are to be
    copied."""
    names, tones = max(map(len, findings)), max(map(len, COLORS))
    margin = names + tones + 4
    lines = []
    for name, finding in findings.items():
        tone = finding.tone.ljust(tones)
        tone = f"\x1b[{COLORS[finding.tone]}m{tone}\x1b[0m" if color else tone
        first, *rest = wrapped(finding.text, width - margin, hang=0, fold=False)
        lines.append(f"{tone}  {name.ljust(names)}  {first}")
        if finding.hint:
            rest += wrapped(f"-> {finding.hint}", width - margin, hang=3, fold=False)
        lines += [" " * margin + line for line in rest]
    counts = [
        counted(count, tone) if tone in ("warning", "failure") else f"{count} {tone}"
        for tone, count in count_tones(findings).items()
        if count
    ]
    return "\n".join([*lines, "", f"{verdict(findings)}: {', '.join(counts)}"])


def format_json(findings: Findings) -> str:
    """Write the findings as JSON: `fit`, `verdict`, and each check with its tone, text and hint."""
    checks = [
        {"check": name, "tone": finding.tone, "text": finding.text, "hint": finding.hint}
        for name, finding in findings.items()
    ]
    whole = {"fit": is_fit(findings), "verdict": verdict(findings), "findings": checks}
    return json.dumps(whole, indent=2)


def doctor(options: DoctorOptions) -> int:
    """Check this machine. Returns the exit code."""
    findings = diagnose(options.python)
    if options.as_json:
        typer.echo(format_json(findings))
    else:
        width, color = terminal(sys.stdout)
        typer.echo(format_text(findings, width=width, color=color), color=color)
    return 0 if is_fit(findings) else 1
