import copy
import json
import random
import shutil
import tomllib
from collections.abc import Callable, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Any, Final, cast

from serve_bench.benchmarks.rpc.spec import read_rpc
from serve_bench.benchmarks.scale.spec import WORKLOADS, read_scale
from serve_bench.cli.program import load_command, run
from serve_bench.core.content import Content
from serve_bench.core.errors import BadInput
from serve_bench.spec.suite import read_suite
from serve_bench.store.files import shipped
from tests.cases import Capture, Patch
from tests.core.test_damaged import PARTS, fields_of, in_parts
from tests.places import FORMATS

SEED: Final = 21
LINES, SUITES = 800, 1_600

WORDS: Final = (
    *("", " ", "0", "1", "-1", "2", "1.5", "-0.0", "nan", "inf", "-inf", "1e400", "1e-400", "1_0"),
    *("9" * 30, "9" * 5_000, "0." + "1" * 400, "٣", "½", "1,2", "1,,2", ",", "1,1"),
    *("raw:1", "raw:", "raw:" + "9" * 5_000, "default", "default,default", "x" * 300, "x" * 5_000),
    *("\n", "\x1b[31m", "é", "\udcff", "'", '"', "@", "@nosuch", "/dev/null", "/dev/zero"),
    *(".", "..", "/", "nosuch/x", "./" + "y" * 300 + ".toml", "auto", "published", "true", "none"),
    *("http://127.0.0.1:1/", "m=http://127.0.0.1:1/", "http://[::1", "Name: value", "[1]", "{}"),
    *("10s", "1m", "-1s", "s", "noop", "ranker", "cpu", "json", "markdown"),
    *("a=b", "=", "a=", "A.b=1", "A.b=" + "1," * 999),
)
"""What stands for the value of a flag; no null character, which no command line can hold."""

PLANNED: Final = ("micro", "sweep", "recsys", "press", "rpc", "versus", "run")
READ: Final = ("report", "compare", "history")


def flags_of(*names: str) -> list[Any]:
    command = load_command(names[0])
    for name in names[1:]:
        command = command.commands[name]
    return [param for param in command.params if param.name not in ("help", "context")]


def line(draw: random.Random, stored: Sequence[Path]) -> list[str]:
    """Draw a command with one to four flags, each with one of the words."""
    names = [draw.choice([*PLANNED, *READ, "scale", "load"])]
    if names[0] == "scale":
        names.append(draw.choice([*WORKLOADS]))
    words = [*names]
    for flag in draw.sample(flags := flags_of(*names), min(len(flags), draw.randint(1, 4))):
        if flag.param_type_name == "argument":
            continue
        words.append(max(flag.opts, key=len))
        if not flag.is_flag:
            words.append(draw.choice(WORDS))
    for flag in flags:
        if flag.param_type_name == "argument":
            run_file = str(draw.choice(stored))
            words.append(run_file if names[0] in READ and draw.random() < 0.8 else "nosuch")
    return words if names[0] in READ else [*words, "--dry-run"]


def part_of(count: int, part: int) -> range:
    return range(part * count // PARTS, (part + 1) * count // PARTS)


@in_parts
def test_odd_command_lines(part: int, tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(FORMATS, runs)  # --plot draws beside them
    stored = sorted(runs.glob("2-*.jsonl"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    refused = 0
    for number in part_of(LINES, part):
        words = line(random.Random(SEED * LINES + number), stored)
        code = run(words)
        error = capsys.readouterr().err
        assert code in (0, 1, 2), words
        if code == 2:
            refused += 1
            last = error.splitlines()[-1]
            assert last.startswith("serve-bench: ") and len(last) < 2_000, words
        assert "Traceback" not in error, words
    assert refused > 20  # otherwise nothing odd was drawn


VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 1.5, float("nan"), float("inf"), 10**18, 10**400),
    *("", "x", "9" * 5_000, "\0", "default"),
    *([], [[]], [1, "a"], [None], {}, {"a": {}}, {"": 1}, ["default", []]),
    json.loads("[" * 200 + "]" * 200),
)


ADDED: Final = [("variants",), ("cells",), ("matrix",), ("base",)]


@in_parts
def test_an_odd_suite_is_read_or_refused_in_one_line(part: int) -> None:
    files = {file.stem: file.read_text() for file in shipped("scenarios").glob("*.toml")}
    del files["versus"]
    readers: dict[str, Callable[[Content], Any]] = {
        **dict.fromkeys(files, read_suite),
        "rpc": partial(read_rpc, flags={}),
        **{f"scale_{kind}": partial(read_scale, kind, flags={}) for kind in WORKLOADS},
    }
    refused = 0
    for number in part_of(SUITES, part):
        draw = random.Random(SEED * SUITES + number)
        name = draw.choice(sorted(readers))
        data = tomllib.loads(files[name])
        for _ in range(draw.randint(1, 2)):
            *parents, key = path = draw.choice([*fields_of(data), *ADDED])
            place: Any = reduce(lambda at, step: at[step], parents, cast(Any, data))
            place[key] = copy.deepcopy(draw.choice(VALUES))
        try:
            readers[name](Content("f.toml", data))
        except BadInput as error:
            refused += 1
            assert "\n" not in str(error) and str(error), (name, path)
    assert refused > 60
