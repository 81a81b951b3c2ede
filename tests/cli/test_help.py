"""The command line as it is met first: help, suggestions, refusals of what is said twice, and what
a shell completes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from serve_bench.benchmarks.commands import COMMANDS
from serve_bench.cli.panels import COMMON, MOST_LINES, PANELS
from serve_bench.cli.program import load_command
from tests.cases import cases
from tests.fixtures import Call, Patch, Refuses

NAMES = [name for group in COMMANDS.values() for name in group]


def parsers() -> dict[str, Any]:
    """All commands, with those below others, by their words."""
    found = {}
    for name in NAMES:
        command = load_command(name)
        found[name] = command
        for below, inner in getattr(command, "commands", {}).items():
            found[f"{name} {below}"] = inner
    return found


PARSERS = parsers()


@cases("words", *PARSERS)
def test_help_fits_40_lines_and_the_whole_names_every_option(
    words: str, call: Call, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    short, _ = call(*words.split(), "--help")
    whole, _ = call(*words.split(), "--help-all")
    assert len(short.splitlines()) <= MOST_LINES
    for param in PARSERS[words].params:
        for name in param.opts if param.param_type_name == "option" else ():
            assert name in whole and (name in short or param.name not in COMMON)
    assert ("--help-all" in short) == (short != whole)


def test_each_common_option_is_one_of_a_command() -> None:
    known = {param.name for command in PARSERS.values() for param in command.params}
    assert {*COMMON, *PANELS} <= known | {"help", "help_all"}


@cases("words", *PARSERS)
def test_an_option_that_takes_one_value_is_refused_twice(words: str, refuses: Refuses) -> None:
    for param in PARSERS[words].params:
        if param.param_type_name == "option" and not (param.multiple or param.is_flag):
            flag = next(name for name in param.opts if name.startswith("--"))
            line = f"{words} {param.opts[0]} 1 {param.opts[-1]} 1"
            refuses(line, f"{flag}: is given twice; it takes one value")


@cases(
    "line, near",
    ("run --optoin x", "No such option: --optoin; did you mean --option?"),
    ("micro --num_replicas 1", "did you mean --num-replicas?"),
    ("mirco", "Did you mean 'micro'?"),
    ("profile dif", "Did you mean 'diff'?"),
    ("micro --variant haproxi", "--variant: unknown variant 'haproxi'; did you mean 'haproxy'?"),
    ("versus --a defualt --b haproxy", "did you mean 'default'?"),
    ("micro --app rankr", "--app: unknown app 'rankr'; did you mean 'ranker'?"),
    ("micro --suite micr", "; did you mean 'micro'?"),
    ("micro --protocol http,strem", "; did you mean 'stream'?"),
    ("history x --metric thruput,p99", "; did you mean 'throughput'?"),
    ("load http://h/ --keepalive --no-keepalive", "--keepalive: is given twice"),
)
def test_what_is_near_a_misspelt_word(line: str, near: str, refuses: Refuses) -> None:
    refuses(line, near)


def test_without_a_command_it_shows_three_to_paste(call: Call) -> None:
    out, _ = call()
    shown = [line.split("#")[0].split() for line in out.splitlines() if line.startswith("  ")]
    assert [words[1] for words in shown] == ["run", "micro", "load"]
    for words in shown:
        call(*words[1:], "--help-all")


@pytest.mark.process
def test_bash_completes_words_options_and_values(tmp_path: Path) -> None:
    program = tmp_path / "serve-bench"
    program.write_text(f'#!/bin/bash\nexec {sys.executable} -m serve_bench "$@"\n')
    program.chmod(0o755)
    run = tmp_path / "results/20260102-030405"
    run.mkdir(parents=True)
    (run / "records.jsonl").touch()
    wanted = {
        "vers": ["versus"],
        "micro --mo": [],
        "micro --live ": ["auto", "plain"],
        "micro --protocol http,st": ["http,stream"],
        "versus --b o": ["optimized"],
        "micro --suite scale_c": ["scale_chain", "scale_curve"],
        "report -f j": ["json"],
        "report res": ["results/20260102-030405"],
        "run --help-": ["--help-all"],
    }
    script = 'eval "$(serve-bench --show-completion)"\n'
    for line in wanted:
        words = f"serve-bench {line}".split(" ")
        listed = " ".join(f"'{word}'" for word in words)
        script += f"COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}\n"
        script += 'COMPREPLY=(); _serve_bench_completion serve-bench; echo "${COMPREPLY[*]}"\n'
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert [line.split() for line in done.stdout.splitlines()] == [*wanted.values()], done.stderr
