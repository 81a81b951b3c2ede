import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_bench.analysis import stacks
from serve_bench.core.errors import BadInput
from serve_bench.report.flamegraph import layer_rules
from tests.cases import cases

RAW = """\
main (app.py:1);serve (app.py:9);hot (app.py:20) 60
main (app.py:1);serve (app.py:9);hot (app.py:21) 20
main (app.py:1);serve (app.py:10) 15
main (app.py:1) 5
"""
FRAMES = st.text(st.characters(codec="utf-8", exclude_characters=";\n\r\x0b\x0c\x1c\x1d\x1e\x85  "))
STACKS = st.dictionaries(
    st.lists(FRAMES.filter(str.strip), min_size=1, max_size=5).map(tuple),
    st.integers(1, 1000),
    min_size=1,
    max_size=8,
)


def shares(profile: stacks.Stacks) -> dict[str, tuple[float, float]]:
    tops = stacks.top_functions(profile)
    return {top.name: (top.self_percent, top.total_percent) for top in tops}


def test_of_20_000_frames_a_layer_keeps_only_what_rules_ask_for() -> None:
    rules, at = layer_rules(), None
    for number in range(20_000):
        at = stacks.layered(f"f{number} (app.py:{number})", at, rules)
    assert at is not None and len(at.under) <= len(rules.rules)


def test_functions_are_added_up_over_lines() -> None:
    profile = stacks.parse_raw(RAW, "x")
    assert stacks.total(profile) == 100
    serve, main = {"serve (app.py)": (15.0, 95.0)}, {"main (app.py)": (5.0, 100.0)}
    assert shares(profile) == {"hot (app.py)": (80.0, 80.0), **serve, **main}
    assert stacks.top_functions(profile, 1)[0].name == "hot (app.py)"
    again = stacks.parse_raw("f (a.py:1);f (a.py:1);f (a.py:1);g (a.py:2) 10\n", "x")
    assert shares(again) == {"f (a.py)": (0.0, 100.0), "g (a.py)": (100.0, 100.0)}  # once a stack
    without_frames = stacks.parse_raw(" 63\nf (a.py:1) 1\n", "x")
    assert without_frames == {(stacks.NO_FRAME,): 63, ("f (a.py:1)",): 1}
    assert stacks.layer_of((stacks.NO_FRAME,), layer_rules()) == stacks.NO_FRAME


@cases(
    "frame, function, file",
    ("hot (app.py:20)", "hot", "app.py"),
    ("C.run.<locals>.f (a/b.py:3)", "C.run.<locals>.f", "a/b.py"),
    ("write (libc.so.6)", "write", "libc.so.6"),
    ("operator()(int) (ray/_raylet.so)", "operator()(int)", "ray/_raylet.so"),
    ("<module> (<string>:4)", "<module>", "<string>"),
    ("thread (20147): MainThread", "thread (20147): MainThread", ""),
)
def test_a_frame_is_split_as_py_spy_writes_it(frame: str, function: str, file: str) -> None:
    assert stacks.split_frame(frame) == (function, file)


def test_threads_that_hardly_ran_are_marked_and_their_headings_taken_off() -> None:
    """So is what a loop in C has above its CPU: the last one ran for 40 of 200 samples."""
    loop = "Thread.run (threading.py:982)"
    profile = stacks.parse_raw(
        "thread (1): Main;a (x.py:1) 90\nthread (2): pool;b (x.py:2) 40\n"
        "thread (3): gone;c (x.py:3) 5\nthread (4);d (x.py:4) 7\nthread (5) 2\n"
        f"thread (6);{loop} 150\nthread (6);{loop};e (x.py:5) 10\n",
        "x",
    )
    marked = stacks.by_thread_ran(profile, {1: 0.9, 2: 0.01, 4: 0.05, 5: 0.3, 6: 0.2}, 200)
    ran: stacks.Stacks = {("a (x.py:1)",): 90, ("c (x.py:3)",): 5, ("d (x.py:4)",): 7}
    others: stacks.Stacks = {("b (x.py:2)", stacks.WAITED): 40, (stacks.NO_FRAME,): 2}
    of_loop: stacks.Stacks = {(loop, "e (x.py:5)"): 10, (loop,): 30, (loop, stacks.WAITED): 120}
    assert marked == {**ran, **others, **of_loop}
    assert stacks.layers(marked, rules := layer_rules())[stacks.IDLE] == pytest.approx(
        100 * 160 / 304
    )
    left = {stacks.NO_FRAME: 200 / 144, "event loop": 3000 / 144, stacks.OTHER: 11_200 / 144}
    assert stacks.layers(stacks.without(marked, stacks.IDLE, rules), rules) == pytest.approx(left)
    # Of a process that does little the busiest thread counts.
    two = stacks.parse_raw("thread (1): Main;a (x.py:1) 9\nthread (2): pool;b (x.py:2) 4\n", "x")
    marked = stacks.by_thread_ran(two, {1: 0.01, 2: 1e-4}, 900)
    assert marked == {("a (x.py:1)",): 9, ("b (x.py:2)", stacks.WAITED): 4}


@cases(
    "frame, kept",
    ("hot (app.py:12)", "hot (app.py:12)"),
    ("f (/x/lib/python3.11/site-packages/ray/a.py:1)", "f (ray/a.py:1)"),
    ("f (/x/lib/python3.11/asyncio/events.py:84)", "f (asyncio/events.py:84)"),
    ("<module> (/srv/me/work/app.py:3)", "<module> (work/app.py:3)"),
    ("g (/srv/lib.so)", "g (srv/lib.so)"),
    ("take_gil (libpython3.11.so.1.0)", "take_gil (libpython3.11.so.1.0)"),
    ("thread (7): a/b", "thread (7): a/b"),
)
def test_no_path_of_a_machine_is_kept(frame: str, kept: str) -> None:
    profile: stacks.Stacks = stacks.merged(
        [{("main (a.py:1)", frame): 3}, {("main (a.py:1)", kept): 4}]
    )
    whole = stacks.shortened(profile)
    assert whole == {("main (a.py:1)", kept): 7}


@cases("text", "no count here", "a;b 1.5", "a;b -1", '{"json": 1}', f"a {'9' * 16}")
def test_what_is_no_stack_is_named_by_its_line(text: str) -> None:
    with pytest.raises(BadInput, match=r"^f\.txt: line 2 is no stack"):
        stacks.parse_raw(f"a 1\n{text}\n", "f.txt")


@given(STACKS)
def test_raw_text_is_read_back_as_it_was(profile: dict[tuple[str, ...], int]) -> None:
    assert stacks.parse_raw(stacks.to_raw(profile), "x") == profile


@given(STACKS, STACKS)
def test_nothing_is_lost(a: dict[tuple[str, ...], int], b: dict[tuple[str, ...], int]) -> None:
    assert stacks.total(stacks.merged([a, b])) == stacks.total(a) + stacks.total(b)
    assert stacks.total(stacks.by_function(a)) == stacks.total(a)
    assert sum(top.self_percent for top in stacks.top_functions(a, 1000)) == pytest.approx(100)
    root = stacks.build_tree(a)
    assert root.samples == stacks.total(a)

    def holds(node: stacks.CallNode) -> None:
        assert sum(child.samples for child in node.children.values()) <= node.samples
        for child in node.children.values():
            holds(child)

    holds(root)


def test_the_change_is_of_shares_so_length_does_not_matter() -> None:
    a = stacks.parse_raw("m (a.py:1);old (a.py:2) 40\nm (a.py:1);same (a.py:3) 60\n", "a")
    b = stacks.parse_raw("m (a.py:1);new (a.py:9) 400\nm (a.py:1);same (a.py:4) 600\n", "b")
    found = {name: of_b - of_a for name, of_a, of_b in stacks.list_changes(a, b)}
    assert found == {"old (a.py)": -40.0, "new (a.py)": 40.0}
    assert not stacks.list_changes(a, {stack: 7 * count for stack, count in a.items()})
    noise = [stacks.measure_noise(*of) for of in ((50, 100), (50, 10_000), (0, 100), (10, 0))]
    assert noise == pytest.approx([10.0, 1.0, 0.0, 100.0])  # by the root of the samples


ENTRY = "UserCallableWrapper._call_func_or_gen (ray/serve/_private/replica.py:900)"


@cases(
    "stack, layer",
    ("run (a.py:1);RequestResponseCycle.send (uvicorn/protocols/http/h.py:9)", "HTTP server"),
    (f"{ENTRY};__call__ (app.py:3);hot (app.py:9)", stacks.USER_CODE),
    (f"{ENTRY};__call__ (app.py:3);dumps (json/__init__.py:9)", stacks.USER_CODE),
    (f"{ENTRY};matmul (numpy/core.py:3)", stacks.USER_CODE),
    (f"{ENTRY};Response.render (starlette/responses.py:3)", "HTTP server"),
    ("main (app.py:3);hot (app.py:9)", stacks.OTHER),
    ("f (ray/serve/_private/replica.py:1);dumps (json/__init__.py:9)", "Serve replica"),
    ("f (ray/serve/_private/replica.py:1);info (logging/__init__.py:5)", "logging"),
    ("f (ray/serve/_private/replica.py:1);Metric._record (ray/util/metrics.py:5)", "metrics"),
    ("Thread.run (threading.py:9);Condition.wait (threading.py:327)", stacks.IDLE),
    ("main (default_worker.py:9);Worker.main_loop (ray/_private/worker.py:1069)", stacks.IDLE),
    ("Thread._bootstrap_inner (threading.py:9);Thread.run (threading.py:982)", "event loop"),
    ("f (ray/serve/_private/replica.py:1);take_gil (libpython3.11.so.1.0)", "GIL wait"),
    ("f (ray/serve/_private/proxy.py:1);create_task (asyncio/tasks.py:9)", "event loop"),
    ("thread (7): loop", stacks.OTHER),
)
def test_a_stack_belongs_to_the_layer_of_its_innermost_known_frame(stack: str, layer: str) -> None:
    assert stacks.layer_of(tuple(stack.split(";")), layer_rules()) == layer


@cases("table", {"name": "x"}, {"files": ["a"]}, {"name": "x", "files": ["a"], "fils": ["b"]})
def test_a_wrong_rule_is_named(table: dict[str, object]) -> None:
    with pytest.raises(BadInput, match=r"^mine\.toml\.layer\[1\]"):
        stacks.read_rules({"layer": [{"name": "ok", "files": ["a"]}, table]}, "mine.toml")
