"""Commands in docs are run.

Those that measure with `--dry-run`: flags are read, apps imported, needs looked at. Those on a URL
load a server with a known answer, shorter than shown. Those that read stored runs are given one.
What remains (py-spy on a Serve that runs, an endpoint that blocks, a model that is timed) is parsed
here, and run in tests/integration.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import typer

from serve_bench.benchmarks.registry import FOLDERS
from serve_bench.benchmarks.scale import needs as scale_needs
from serve_bench.cli.program import app, load_command
from serve_bench.core.result import Result, Run
from serve_bench.runner.load_source import read_load_on
from serve_bench.store.files import read_toml, suite_file
from tests.cases import Call, Patch, cases
from tests.places import TOP, execute, git, program
from tests.records import AT, ROWS, store_run
from tests.servers import serving
from tests.suites import suite_with
from tests.versus_records import micro_result, versus_result

pytestmark = pytest.mark.process

READ_MES = ("README.md", "profiles/README.md", "examples/ci/README.md")
PAGES = [*(TOP / name for name in READ_MES), *sorted((TOP / "docs").rglob("*.md"))]
PLANNED = (
    *("micro", "sweep", "recsys", "press", "rpc", "scale", "run", "versus", "capacity", "tax"),
    *("timeline", "soak"),
)
STORED = ("report", "compare", "history")
#: A URL of an example.
URL = re.compile(r"http://[A-Za-z0-9.]+:\d+/[a-z]*")


def commands(page: Path) -> list[str]:
    """Those that stand on lines of their own, without remarks and what the shell does."""
    text = page.read_text().replace("\\\n", " ")
    found = re.findall(r"^ {4,6}(serve-bench [a-z]+(?: .*?)?)(?: +#.*)?$", text, re.MULTILINE)
    found = [re.split(r" \|\| | && ?| \d?>", line)[0].strip() for line in found]
    meant = {"$(date +%F)": "2026-01-02", "$flag": "RAY_SERVE_ENABLE_HA_PROXY=0"}
    for words, value in meant.items():
        found = [line.replace(words, value) for line in found]
    return found


SHOWN = list(dict.fromkeys(line for page in PAGES for line in commands(page)))


def name_of(line: str) -> str:
    return line.split()[1]


def on_url(line: str) -> bool:
    return "--url" in line or name_of(line) == "load"


def lines(*names: str, url: bool = False) -> list[Any]:
    """List what is shown of these commands; marked by what they need."""
    found = [line for line in SHOWN if name_of(line) in names and on_url(line) == url]
    if url:  # those that differ by the address alone are one command
        found = list({URL.sub("URL", line): line for line in found}.values())
    return [pytest.param(line, marks=marks(line)) for line in found if " plot " not in line]


def marks(line: str) -> list[pytest.MarkDecorator]:
    """Mark models, which ask torch for a device before they plan, and apps, imported with Ray."""
    name = name_of(line)
    model = name in ("recsys", "press", "rpc") or "--app r" in line
    imported = name == "run" or ".py:" in line
    return [pytest.mark.torch] * (model and not on_url(line)) + [pytest.mark.ray] * imported


def flagged(line: str) -> list[str]:
    return shlex.split(line.removesuffix(" &"))[1:]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Patch) -> Path:
    for name in ("own_app", "chat", "grpc", "tutorial"):
        shutil.copytree(TOP / "examples" / name, tmp_path / "examples" / name)
    (tmp_path / "body.json").write_text("{}")
    for name in ("shop.py", "my/package.py", "base/app.py", "pr/app.py", "good/shop.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(TOP / "examples" / "own_app" / "shop.py", tmp_path / name)
    for name in ("base-env", "pr-env", "ray-2.58.0", "ray-2.59.0", "ray-2.60.0"):
        program(tmp_path / name / "bin" / "python", f'exec {sys.executable} "$@"')
    (tmp_path / "paths.txt").write_text("/a\n/b?id=2\n")
    shop = "{name: shop, route_prefix: /shop, import_path: 'shop:app'}"
    (tmp_path / "config.yaml").write_text(f"applications: [{shop}]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files_in(folder: Path) -> list[Path]:
    """All files, but what Python itself leaves where it imports an app."""
    return sorted(file for file in folder.rglob("*.*") if "__pycache__" not in file.parts)


def store_results(folder: Path) -> None:
    """Store a run with results in three launches; of versus by that name."""
    rates = {row: (rate, 1.01 * rate, 0.99 * rate) for rate, row in enumerate(ROWS, 100)}
    versus = folder.name == "versus"
    store_run(folder, versus_result(looks=True) if versus else micro_result(rates, folder.name))


def store_begun(folder: Path) -> None:
    """Store a run of `micro` that only began, for --resume."""
    suite = suite_with(read_toml(suite_file("micro")), "micro.toml")
    store_run(folder, Result(Run("id", (), "micro", AT, "0", suite=suite.to_json())))


def test_pages_show_commands() -> None:
    shown = {page.name: commands(page) for page in PAGES}
    for name in ("ab.md", "faq.md", "own-app.md", "press.md", "rpc.md", "scale.md", "ci.md"):
        assert shown[name], name
    assert len(SHOWN) >= 90
    known: Any = typer.main.get_command(app)
    assert {name_of(line) for line in SHOWN} == set(known.list_commands(None))
    # Their flags are understood.
    for line in SHOWN:
        name, *words = flagged(line)
        command = load_command(name)
        while words and words[0] in getattr(command, "commands", {}):
            name, *words = words
            command = command.commands[name]
        context = command.make_context(name, list(words))
        assert context.info_name == name and not context.args, line
    places = [line.split("--load-on ")[1].split()[0] for line in SHOWN if "--load-on" in line]
    assert places and all(read_load_on(place, None) is not None for place in places)


@pytest.mark.parametrize("line", lines(*PLANNED))
def test_what_measures_is_planned(line: str, folder: Path, call: Call, monkeypatch: Patch) -> None:
    monkeypatch.setattr(scale_needs, "reachable", lambda address: address)
    monkeypatch.setattr(scale_needs, "free_memory_bytes", lambda: 1 << 40)
    words = [word for word in flagged(line) if word != "--dry-run"]
    if "--resume" in words:
        store = store_results if words[0] == "versus" else store_begun
        store(Path(words[words.index("--resume") + 1]))
    before = files_in(folder)
    if "cuda" in line and not list(Path("/dev").glob("nvidia[0-9]*")):
        assert "cuda" in call(*words, "--dry-run", code=2)[1]
        return
    assert re.search(r"about \d", call(*words, "--dry-run")[0])
    assert files_in(folder) == before


#: Stands for the program in the recipe of a search: how fast the app of B is stands in its file.
PROGRAM = """\
case "$1 $(cat shop.py)" in
  versus*crash*) exit 1 ;;
  versus*slow*) exit 3 ;;
  report*unclear*) exit 3 ;;
esac
"""


@pytest.mark.git
@cases(
    "commits, suspects",
    (("fast", "fast 1", "fast 2", "slow", "slow 4"), ["step-3"]),
    (("fast", "fast 1", "crash", "slow", "slow 4"), ["step-2", "step-3"]),
    (("fast", "fast 1", "unclear", "slow", "slow 4"), ["step-2", "step-3"]),
)
def test_the_search_works(commits: Sequence[str], suspects: Sequence[str], tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    names = {}
    for number, words in enumerate(commits):
        (tmp_path / "shop.py").write_text(words)
        git(tmp_path, "add", "shop.py")
        git(tmp_path, "commit", "-q", "-m", f"step-{number}")
        names[git(tmp_path, "rev-parse", "HEAD")] = f"step-{number}"
    git(tmp_path, "tag", "v1.5")
    git(tmp_path, "tag", "v1.4", "HEAD~4")
    stand_in = program(tmp_path / "bin" / "serve-bench", PROGRAM)
    page = (TOP / "docs" / "bisect.md").read_text()
    recipe = textwrap.dedent(re.findall(r"(?:^    .*\n)+", page, re.MULTILINE)[0])
    env = {**os.environ, "PATH": f"{stand_in.parent}:{os.environ['PATH']}"}
    done = execute("sh", "-c", recipe, cwd=tmp_path, env=env)
    text = " ".join(names.get(word, word) for word in done.stdout.split())
    if len(suspects) == 1:
        assert f"{suspects[0]} is the first bad commit" in text
    else:
        _, _, rest = text.partition("The first bad commit could be any of: ")
        assert sorted(rest.split()[: len(suspects)]) == suspects
    assert not (tmp_path / "good").exists() and "bisect" not in git(tmp_path, "status")


@pytest.mark.parametrize("line", lines(*STORED))
def test_stored_runs_are_read(line: str, folder: Path, call: Call) -> None:
    line, _, asked = line.partition(" | ")
    words = flagged(line)
    named = [word for word in words[1:3] if re.fullmatch(r"(?!results$|-)[\w/-]+", word)]
    for name in named or [f"results/{name}" for name in "abcd"]:
        store_results(folder / name)
    shown, _ = call(*words)
    if asked and shutil.which("jq"):
        done = subprocess.run(shlex.split(asked), input=shown, stdout=subprocess.PIPE, text=True)
        assert done.returncode == 0 and "connections" in done.stdout
    shown += "".join(page.read_text() for page in folder.rglob("*.html"))
    assert re.search("requests/s|inconclusive|throughput", shown) or [*folder.glob("*.svg")]


def test_the_demo_shows_every_kind_without_ray() -> None:
    kinds = {file.parent.name for file in (TOP / "examples/results").glob("*/records.jsonl")}
    assert kinds == {*FOLDERS}
    code = "import sys; sys.modules['ray'] = None; from serve_bench.__main__ import main; main()"
    done = execute(sys.executable, "-c", code, "report", "examples/results", cwd=TOP)
    assert done.returncode == 0, done.stderr
    assert kinds <= {*done.stdout.split()}


#: What both an OpenAI-compatible service and one of plain events may answer.
CHUNKS = b'data: {"choices":[{"text":"a"}]}\n\ndata: [DONE]\n\n'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 48\r\n\r\n"
STREAM = [(0.0, HEAD + CHUNKS)]


def alone(found: list[Any]) -> list[Any]:
    """Choose loads without cluster or gRPC; tests/integration and tests/load run the others."""
    needy = ("--load-on", "--profile", "--trace", "--protocol grpc")
    return [param for param in found if not any(flag in param.values[0] for flag in needy)]


@pytest.mark.parametrize("line", alone(lines("load", url=True)))
def test_loads_work(line: str, folder: Path, call: Call) -> None:
    streams = "--protocol stream" in line or "--openai" in line
    with serving(steps=(lambda number: STREAM) if streams else None) as server:
        shorter = re.sub(r" -d \d+s", " -d 500ms", URL.sub(server.url, line))
        words = flagged(re.sub(r":\d+s", ":100ms", shorter))
        if "-d" not in words and "--stages" not in words:
            words += ["-d", "500ms"]
        out, _ = call(*words, "--timeout", "5s")
    assert " completed + 0 failed" in out
