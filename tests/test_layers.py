"""The house rules on imports, held against the source itself (an `ast` walk, nothing imported).

words <- machines <- runner <- cli          words <- report <- cli
words <- machines <- plugin (of pytest)
A new module must be given its place here.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

import pytest

PACKAGE: Final = Path(__file__).parent.parent / "serve_bench"

WORDS: Final = frozenset(
    """agenda app_spec axes best_cell checks climb comparing comparison counted_figures counts
    errors failed_requests fitness histogram history jsonl kept ladder ladder_figures load_result
    load_spec load_split node_names node_result own_app own_module own_suite pacing press_compare
    press_figures press_request press_rows proof ranker_figures recipes request_spec
    result rpc_figures rpc_request scale_curve scale_figures scale_growth scale_keys
    scale_nodes scale_request scale_suite scale_trial scenario serve_config slicing stack_layers
    stacks statistics suite trial usage variants verdict versus_budget versus_request""".split()
)
MACHINES: Final = frozenset(
    """apps at_once attached_cluster child clock cluster counted_rounds doctor duet files
    gpu host inside kept_cluster launch_spec load load_place marked model_needs nodes
    own_app_facts perf ports processes profiler profiling prometheus pyspy
    ranker_bench readings recording requests_file rights rpc_backend rpc_needs sampler
    scale_cluster scale_needs serve_metrics server settling shipped store strays waits""".split()
)
LAYERS: Final = {
    **dict.fromkeys(WORDS, "words"),
    **dict.fromkeys(MACHINES, "machines"),
    "report": "report",
    "observer": "runner",
    "runner": "runner",
    "rpc_episodes": "runner",
    "rpc_runner": "runner",
    "scale_rows": "runner",
    "scale_runner": "runner",
    "teardown": "runner",
    "url_runner": "runner",
    "versus_rows": "runner",
    "versus_runner": "runner",
    "versus_sides": "runner",
    "cli": "cli",
    "__main__": "cli",
    "pytest_plugin": "plugin",
}
ALLOWED: Final = {
    "words": {"words"},
    "machines": {"words", "machines"},
    "report": {"words", "report"},
    "runner": {"words", "machines", "runner"},
    "cli": {"words", "machines", "report", "runner", "cli"},
    "plugin": {"words", "machines", "plugin"},
}

#: What words may use of the standard library: no clock, no file, no process, no network.
PURE: Final = frozenset(
    """__future__ abc base64 bisect collections copy dataclasses difflib enum fnmatch
    functools hashlib heapq ipaddress itertools json math random re statistics string types typing
    urllib""".split()
)

#: Libraries that only some modules may import; a name that ends with / is a folder.
ONLY_IN: Final = {
    "ray": ("cluster/", "apps/", "nodes/"),
    "torch": ("apps/",),
    "typer": ("cli/",),
    "click": ("cli/",),
    "rich": ("cli/", "report/table.py"),
    "pytest": ("pytest_plugin/",),
    "pytest_benchmark": (),
    "aiohttp": ("load/",),
    "httptools": ("load/",),
    "starlette": ("apps/",),
    "fastapi": ("apps/",),
    "anyio": ("apps/",),
    "numpy": ("apps/",),
    "matplotlib": (
        "report/plot_file.py",
        "report/plot_history.py",
        "report/plot_ladders.py",
        "report/plot_rpc.py",
        "report/plot_scale.py",
    ),
    "vl_convert": ("report/html/bundle.py",),
    "scipy": ("comparison.py",),
    "pandas": (),
    "pickle": (),
}

#: The child process may run under another interpreter, where serve-bench is not installed.
STARTED_BY_PATH: Final = ("cluster/", "apps/")
#: `yaml` comes with Ray.
OF_THE_CHILD: Final = frozenset({"ray", "yaml", "starlette", "anyio", "fastapi", "numpy", "torch"})

MODULES: Final = sorted(
    str(file.relative_to(PACKAGE))
    for file in PACKAGE.rglob("*.py")
    if "__pycache__" not in file.parts
)

#: The folder cluster is a program: its modules know each other by their plain names.
PROGRAM: Final = [name for name in MODULES if name.startswith("cluster/")]
OF_THE_PROGRAM: Final = frozenset(Path(name).stem for name in PROGRAM) - {"__main__"}


def within(module: str, places: tuple[str, ...]) -> bool:
    return any(
        module == place or (place.endswith("/") and module.startswith(place)) for place in places
    )


def place_of(module: str) -> str:
    """The top-level name of a module: `load/raw.py` is `load`."""
    return module.split("/")[0].removesuffix(".py")


def imports(module: str) -> Iterator[str]:
    """The absolute names of all that a module imports, inside functions too."""
    tree = ast.parse((PACKAGE / module).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            here = ["serve_bench", *Path(module).parts[:-1]]
            base = here[: len(here) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{name}.{item.name}" for item in node.names)


def absolute(module: str, at_once: bool = False) -> set[str]:
    """The top-level names of what a module imports by its full name; `at_once`: while it loads."""
    names: set[str] = set()
    tree = ast.parse((PACKAGE / module).read_text(encoding="utf-8"))
    for node in tree.body if at_once else ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(name.name.split(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module.split(".")[0])
    return names


def ours(module: str) -> set[str]:
    """The top-level names of serve_bench that a module imports."""
    names = {name.split(".")[1] for name in imports(module) if name.startswith("serve_bench.")}
    return {name for name in names if not name.startswith("__")}  # __version__


def theirs(module: str) -> set[str]:
    """The top-level names of everything else that a module imports."""
    return {name.split(".")[0] for name in imports(module)} - {"serve_bench"}


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_a_place(module: str) -> None:
    assert module == "__init__.py" or place_of(module) in LAYERS


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_every_place_is_in_use(name: str) -> None:
    assert (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()


@pytest.mark.parametrize("module", [name for name in MODULES if name != "__init__.py"])
def test_imports_point_one_way(module: str) -> None:
    layer = LAYERS[place_of(module)]
    wrong = {name for name in ours(module) if LAYERS.get(name) not in ALLOWED[layer]}
    assert not wrong, f"{module} ({layer}) may not import {sorted(wrong)}"


@pytest.mark.parametrize("module", [name for name in MODULES if place_of(name) in WORDS])
def test_words_are_pure(module: str) -> None:
    # Numbers in, numbers out; inside functions, so that what shows nothing of it does not wait.
    mathematics = {"scipy"} if within(module, ONLY_IN["scipy"]) else set()
    assert theirs(module) <= PURE | mathematics
    assert not absolute(module, at_once=True) & mathematics
    tree = ast.parse((PACKAGE / module).read_text(encoding="utf-8"))
    called = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not called & {"open", "print", "input", "exec", "eval"}


@pytest.mark.parametrize("module", MODULES)
def test_heavy_libraries_stay_in_their_place(module: str) -> None:
    wrong = {
        name for name in theirs(module) if name in ONLY_IN and not within(module, ONLY_IN[name])
    }
    assert not wrong, f"{module} may not import {sorted(wrong)}"


@pytest.mark.parametrize("module", [name for name in MODULES if within(name, STARTED_BY_PATH)])
def test_the_child_needs_no_serve_bench(module: str) -> None:
    beyond = theirs(module) - sys.stdlib_module_names
    if module in PROGRAM:
        beyond -= OF_THE_PROGRAM
    assert beyond <= OF_THE_CHILD
    assert "serve_bench" not in absolute(module)
    # The folder apps stands under another name there: its modules know each other relatively.
    assert ours(module) <= ({"apps"} if place_of(module) == "apps" else set())


def test_the_program_hides_nothing_of_others() -> None:
    assert {Path(name).parent.name for name in PROGRAM} == {"cluster"}  # no folder in it
    assert "cluster/__main__.py" in PROGRAM and "__init__" not in OF_THE_PROGRAM
    assert not OF_THE_PROGRAM & sys.stdlib_module_names
    assert not OF_THE_PROGRAM & set(metadata.packages_distributions())  # ray and what it needs


@pytest.mark.parametrize("module", MODULES)
def test_the_program_is_loaded_at_once_and_by_itself_alone(module: str) -> None:
    known = OF_THE_PROGRAM & theirs(module)
    if module in PROGRAM:  # once it has loaded, its folder is taken off the path
        assert known <= absolute(module, at_once=True)
    else:
        assert not known


@pytest.mark.parametrize("module", [name for name in MODULES if place_of(name) == "load"])
def test_the_load_knows_nothing_of_serve(module: str) -> None:
    assert {LAYERS.get(name) for name in ours(module) - {"load"}} <= {"words"}


@pytest.mark.parametrize("module", MODULES)
def test_every_module_says_what_it_is(module: str) -> None:
    text = (PACKAGE / module).read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text)), f"{module} opens with no docstring"
    assert Path(module).stem not in ("utils", "util", "helpers", "common", "misc")


@pytest.mark.parametrize("module", MODULES)
def test_nothing_is_run_by_a_shell(module: str) -> None:
    tree = ast.parse((PACKAGE / module).read_text(encoding="utf-8"))
    words = [
        word.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for word in node.keywords
    ]
    assert "shell" not in words


def test_a_report_is_drawn_without_ray_and_all_that_is_heavy() -> None:
    code = (
        "import sys, serve_bench.report, serve_bench.store, serve_bench.host\n"
        "heavy = {'ray', 'torch', 'scipy', 'numpy', 'aiohttp', 'pandas', 'rich', 'matplotlib',"
        " 'vl_convert', 'serve_bench.report.html'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=PACKAGE.parent,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_the_walk_sees_what_it_must(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "load").mkdir()
    (tmp_path / "load" / "x.py").write_text(
        "import ray.serve as s\nfrom . import y\nfrom .. import runner\n"
        "def f():\n    from serve_bench.cli.micro import z\n"
    )
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    assert theirs("load/x.py") == {"ray"}
    assert ours("load/x.py") == {"load", "runner", "cli"}
