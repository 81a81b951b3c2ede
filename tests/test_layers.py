"""The house rules on imports, held against the source itself (an `ast` walk, nothing imported).

core <- analysis, store, load, spec <- serving <- observing <- nodes <- runner <- benchmarks <- cli
core <- analysis <- view <- benchmarks, report <- cli
The command of a kind of run lies in its folder of benchmarks and is of the room cli.
"""

import ast
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

from tests.cases import cases
from tests.places import TOP, execute

PACKAGE: Final = TOP / "serve_bench"

#: Each room, and those that it may import from beside itself.
ROOMS: Final[dict[str, set[str]]] = {
    "core": set(),
    "spec": {"core"},
    "analysis": {"core"},
    "store": {"core"},
    "load": {"core"},
    "serving": {"core", "spec", "store"},
    "observing": {"core", "store", "analysis", "load", "serving"},
    "nodes": {"core", "store", "load", "serving", "observing"},
    "runner": set("core spec analysis store load serving observing nodes".split()),
    "view": {"core", "analysis"},
    "benchmarks": set("core spec analysis view store load serving observing nodes runner".split()),
    "doctor": {"core", "analysis", "store", "load", "serving", "observing", "runner", "benchmarks"},
    "report": {"core", "analysis", "view"},
}
ROOMS["cli"] = {*ROOMS}
ROOMS["pytest_plugin"] = {*ROOMS} - {"cli", "report", "doctor"}

#: Modules of benchmarks that are of the command line.
COMMANDS: Final = frozenset({"command", "experiment", "options"})

#: Modules of benchmarks that start processes, use the clock or read files; the others are pure.
MEASURING: Final = frozenset(
    """attached_cluster backend bench cluster episodes facts measure needs runner sides
    plot registry""".split()
)

#: What pure modules may use of the standard library: no clock, no file, no process, no network.
PURE: Final = frozenset(
    """__future__ abc base64 bisect collections copy csv dataclasses difflib enum fnmatch
    functools hashlib heapq html inspect io ipaddress itertools json math msgspec operator random re
    shlex statistics string struct textwrap types typing urllib""".split()
)

#: What loads modules of this package, or figures that are shipped in it.
LOADING: Final = ("benchmarks/registry.py", "view/published.py")

#: Libraries that only some modules may import; a name that ends with / is a folder.
ONLY_IN: Final = {
    "ray": ("serving/cluster/", "serving/apps/", "nodes/", "load/handle_client.py"),
    "torch": ("serving/apps/",),
    "typer": ("cli/",),
    "click": ("cli/",),
    "jinja2": ("report/page.py",),
    "markupsafe": (),
    "rich": ("cli/", "report/columns.py", "report/terminal.py"),
    "pytest": ("pytest_plugin/",),
    "pytest_benchmark": (),
    "aiohttp": ("load/",),
    "grpc": ("load/grpc_client.py", "serving/apps/", "serving/cluster/deployer.py"),
    "google": ("serving/apps/", "serving/cluster/describe.py"),
    "httptools": ("load/",),
    "starlette": ("serving/apps/",),
    "fastapi": ("serving/apps/",),
    "anyio": ("serving/apps/", "serving/cluster/look.py"),
    "numpy": ("serving/apps/", "analysis/ratios.py", "analysis/drift.py"),
    "vl_convert": ("report/picture.py",),
    "scipy": ("analysis/ratios.py",),
    "pandas": (),
    "pickle": (),
}

#: The child process may run under another interpreter, where serve-bench is not installed.
STARTED_BY_PATH: Final = ("serving/cluster/", "serving/apps/")
#: `yaml` comes with Ray.
OF_THE_CHILD: Final = frozenset(
    # the last four come with Ray
    "ray yaml starlette anyio fastapi numpy torch grpc google opentelemetry uvicorn".split()
)

MODULES: Final = sorted(
    str(file.relative_to(PACKAGE))
    for file in PACKAGE.rglob("*.py")
    if "__pycache__" not in file.parts
)

#: The folder serving/cluster is a program: its modules know each other by their plain names.
PROGRAM: Final = [name for name in MODULES if name.startswith("serving/cluster/")]
OF_THE_PROGRAM: Final = frozenset(Path(name).stem for name in PROGRAM) - {"__main__"}


def within(module: str, places: tuple[str, ...]) -> bool:
    room = f"{room_of(module)}/"
    return any(
        module == place or (place.endswith("/") and (module.startswith(place) or place == room))
        for place in places
    )


def room_of(module: str) -> str:
    """Find the top-level name of a module: `load/raw.py` is `load`; a command's is cli."""
    room = module.split("/")[0].removesuffix(".py")
    return "cli" if room == "benchmarks" and Path(module).stem in COMMANDS else room


def pure(module: str) -> bool:
    """Whether a module computes alone: no clock, no file, no process, no network."""
    room = room_of(module)
    return room in ("core", "analysis", "view") or (
        room == "benchmarks" and Path(module).stem not in MEASURING
    )


PURE_MODULES: Final = [name for name in MODULES if pure(name)]


@cache
def source(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def nodes(file: Path) -> list[ast.AST]:
    return [*ast.walk(source(file))]


def imports(module: str) -> Iterator[str]:
    """List the absolute names of all that a module imports, inside functions too."""
    for node in nodes(PACKAGE / module):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            here = ["serve_bench", *Path(module).parts[:-1]]
            base = here[: len(here) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{name}.{item.name}" for item in node.names)


def absolute(module: str, at_once: bool = False) -> set[str]:
    """List the top-level names that a module imports by full name; `at_once`: while it loads."""
    names: set[str] = set()
    file = PACKAGE / module
    for node in source(file).body if at_once else nodes(file):
        if isinstance(node, ast.Import):
            names.update(name.name.split(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module.split(".")[0])
    return names


def ours(module: str) -> set[str]:
    names = [name for name in imports(module) if name.startswith("serve_bench.")]
    rooms = {room_of("/".join(name.split(".")[1:4])) for name in names}
    return {room for room in rooms if not room.startswith("__")}  # __version__


def theirs(module: str) -> set[str]:
    return {name.split(".")[0] for name in imports(module)} - {"serve_bench"}


def assert_none(wrong: Mapping[str, Collection[object]]) -> None:
    """All that is wrong at once, by module."""
    assert not {module: found for module, found in wrong.items() if found}


def test_every_module_is_in_a_room_and_every_room_is_there() -> None:
    homeless = [name for name in MODULES if room_of(name) not in ROOMS]
    assert homeless == ["__init__.py", "__main__.py"]
    assert not [room for room in ROOMS if not (PACKAGE / room / "__init__.py").is_file()]
    assert not [name for name in MODULES if not ast.get_docstring(source(PACKAGE / name))]
    vague = ("utils", "util", "helpers", "common", "misc")
    assert not [name for name in MODULES if Path(name).stem in vague]
    # What writes lines on stderr writes control characters out: names may be a stranger's.
    texts = {name: (PACKAGE / name).read_text(encoding="utf-8") for name in MODULES}
    printing = [name for name, text in texts.items() if re.search("file=sys.stderr|err=True", text)]
    assert printing == ["cli/__init__.py"]


def test_imports_point_one_way() -> None:
    rooms = {module: room_of(module) for module in MODULES if room_of(module) in ROOMS}
    assert_none({name: ours(name) - {room} - ROOMS[room] for name, room in rooms.items()})
    assert ours("cli/program.py") >= {"cli", "core"}
    # Heavy libraries stay in their place.
    heavy = {name: theirs(name) & ONLY_IN.keys() for name in MODULES}
    assert heavy["load/handle_client.py"] == {"ray"}
    assert_none(
        {
            module: {name for name in names if not within(module, ONLY_IN[name])}
            for module, names in heavy.items()
        }
    )
    # No kind of run uses another.
    kinds = {file.parent.name for file in PACKAGE.glob("benchmarks/*/*.py")}
    named = ((name, used.split(".")) for name in MODULES for used in imports(name))
    used = {
        (Path(name).parts[1], parts[2]) for name, parts in named if parts[1:2] == ["benchmarks"]
    }
    assert not {pair for pair in used if {*pair} <= kinds and len({*pair}) == 2}


def test_what_is_pure_imports_nothing_else() -> None:
    below = {"core", "spec", "analysis", "view", "benchmarks"}
    assert_none({name: ours(name) - below for name in PURE_MODULES})
    parts = {
        module: set(re.findall(r"\.benchmarks\.\w+\.(\w+)", " ".join(imports(module))))
        for module in PURE_MODULES
    }
    assert_none({module: found & MEASURING for module, found in parts.items()})


def test_what_is_pure_is_pure() -> None:
    # Numbers in, numbers out; inside functions, so that what shows nothing of it does not wait.
    for module in PURE_MODULES:
        mathematics = {name for name in ("scipy", "numpy") if within(module, ONLY_IN[name])}
        loaded = {"importlib"} if within(module, LOADING) else set()
        assert theirs(module) <= PURE | mathematics | loaded, module
        assert not absolute(module, at_once=True) & mathematics, module
        called = {
            node.func.id
            for node in nodes(PACKAGE / module)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert not called & {"open", "print", "input", "exec", "eval"}, module


def test_the_child_needs_no_serve_bench() -> None:
    for module in (name for name in MODULES if within(name, STARTED_BY_PATH)):
        beyond = theirs(module) - sys.stdlib_module_names
        if module in PROGRAM:
            beyond -= OF_THE_PROGRAM
        assert beyond <= OF_THE_CHILD, module
        assert "serve_bench" not in absolute(module), module
        # The folder apps stands under another name there: its modules know each other relatively.
        inside = {"serving"} if module.startswith("serving/apps/") else set()
        assert ours(module) <= inside, module


def test_the_program_hides_nothing_of_others() -> None:
    assert {Path(name).parent.as_posix() for name in PROGRAM} == {"serving/cluster"}
    assert "serving/cluster/__main__.py" in PROGRAM and "__init__" not in OF_THE_PROGRAM
    assert not OF_THE_PROGRAM & sys.stdlib_module_names
    assert not OF_THE_PROGRAM & set(metadata.packages_distributions())  # ray and what it needs
    # It is loaded at once, and by itself alone.
    for module in MODULES:
        known = OF_THE_PROGRAM & theirs(module)
        # Once it has loaded, its folder is taken off the path; that of the nodes answers by it.
        by_it = module in PROGRAM or module == "nodes/__main__.py"
        allowed = absolute(module, at_once=True) if by_it else set()
        assert known <= allowed, module


@cases(
    "modules, without",
    ("report store observing.host", "ray torch scipy numpy aiohttp pandas rich vl_convert"),
    ("nodes.crew nodes.actors", "ray rich typer"),  # on the side of the parent
)
def test_what_is_drawn_or_asked_loads_nothing_that_is_heavy(modules: str, without: str) -> None:
    names = ", ".join(f"serve_bench.{name}" for name in modules.split())
    code = f"import sys, {names}; print(sorted({{*{without.split()}}} & {{*sys.modules}}))"
    assert execute(sys.executable, "-c", code, cwd=TOP, check=True).stdout == "[]\n"
