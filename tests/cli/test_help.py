"""The command line as it is met first: help, what is said twice, what a shell completes."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from serve_bench.benchmarks.commands import COMMANDS
from serve_bench.cli import find
from serve_bench.cli.panels import COMMON, MOST_LINES, PANELS
from serve_bench.cli.program import load_command
from tests.cases import Call, Patch, Refuses, cases
from tests.places import TOP, execute

WHOLE: dict[str, Any] = {name: load_command(name) for group in COMMANDS.values() for name in group}
PARSERS = WHOLE | {
    f"{name} {below}": inner
    for name, command in WHOLE.items()
    for below, inner in getattr(command, "commands", {}).items()
}
"""All commands by their words, those below others too."""


def test_the_table_says_what_each_command_says_first_and_what_runs_it_is_there() -> None:
    listed = {name: help for group in COMMANDS.values() for name, (_, help) in group.items()}
    assert {name: command.help.partition("\n")[0] for name, command in WHOLE.items()} == listed
    for words, command in PARSERS.items():
        assert words == "scale" or callable(find(command.place))
    # An option that has a panel, or is common, is one of a command.
    known = {param.name for command in PARSERS.values() for param in command.params}
    assert {*COMMON, *PANELS} <= known | {"help"}


def test_no_help_waits_for_what_a_command_runs() -> None:
    libraries = "ray numpy scipy torch aiohttp grpc psutil rich jinja2"
    rooms = "analysis load nodes observing runner serving.cluster serving.server store view"
    code = f"""if True:
        import sys
        from serve_bench.benchmarks.commands import COMMANDS
        from serve_bench.cli.program import load_command
        assert all(load_command(name) for commands in COMMANDS.values() for name in commands)
        heavy = [*"{libraries}".split(), *(f"serve_bench.{{room}}" for room in "{rooms}".split())]
        print(sorted({{*heavy}} & {{*sys.modules}}))
    """
    assert execute(sys.executable, "-c", code, cwd=TOP, check=True).stdout == "[]\n"


@cases("words", *PARSERS)
def test_help_fits_40_lines(words: str, call: Call, monkeypatch: Patch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    short, _ = call(*words.split(), "--help")
    whole, _ = call(*words.split(), "--help-all")
    assert len(short.splitlines()) <= MOST_LINES
    assert ("--help-all" in short) == (short != whole)
    for param in PARSERS[words].params:
        is_shown = param.param_type_name == "option" and param.name != "help_all"
        for name in param.opts if is_shown else ():
            assert name in whole and (name in short or param.name not in COMMON)


@cases("words", *PARSERS)
def test_an_option_that_takes_one_value_is_refused_twice(words: str, refuses: Refuses) -> None:
    for param in PARSERS[words].params:
        if param.param_type_name == "option" and not (param.multiple or param.is_flag):
            flag = next(name for name in param.opts if name.startswith("--"))
            line = f"{words} {param.opts[0]} 1 {param.opts[-1]} 1"
            refuses(line, f"{flag}: is given twice; it takes one value")


def test_without_a_command_it_shows_three_to_paste(call: Call) -> None:
    out, _ = call()
    shown = [line.split("#")[0].split() for line in out.splitlines() if line.startswith("  ")]
    assert [words[1] for words in shown] == ["run", "micro", "load"]
    for words in shown:
        call(*words[1:], "--help-all")


@pytest.mark.process
def test_bash_completes_commands_options_and_values(tmp_path: Path) -> None:
    program = tmp_path / "serve-bench"
    program.write_text(f'#!/bin/bash\nexec {sys.executable} -m serve_bench "$@"\n')
    program.chmod(0o755)
    run = tmp_path / "results/20260102-030405"
    run.mkdir(parents=True)
    (run / "records.jsonl").touch()
    wanted = {
        "vers": "versus",
        "micro --live ": "auto plain",
        "micro --protocol http,st": "http,stream",
        "versus --b o": "optimized",
        "micro --suite scale_c": "scale_chain scale_curve",
        "report -f j": "json",
        "report res": "results/20260102-030405",
        "run --help-": "--help-all",
    }
    script = 'eval "$(serve-bench --show-completion)"\n'
    for line in wanted:
        words = ["serve-bench", *line.split(" ")]
        script += f"COMP_WORDS=({' '.join(map(repr, words))}) COMP_CWORD={len(words) - 1}\n"
        script += '_serve_bench_completion serve-bench; echo "${COMPREPLY[*]}"\n'
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": os.getcwd()}
    shell = execute("bash", "-c", script, cwd=tmp_path, env=env, check=True)
    assert shell.stdout.splitlines() == [*wanted.values()], shell.stderr
