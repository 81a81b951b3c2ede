import json
import sys
from base64 import b64encode, encodebytes
from dataclasses import asdict, replace
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from serve_bench.cli.program import main
from serve_bench.cli.progress import failure_text
from serve_bench.cli.sitting import named_by
from serve_bench.core import record_lines as jsonl
from serve_bench.core import redaction
from serve_bench.core.plan import label_of
from serve_bench.core.proof import contradictions
from serve_bench.core.result import Deploy, Failure, VariantUsed, trial_key
from serve_bench.core.schema import built
from serve_bench.core.secrets import hash_value, hide
from serve_bench.core.suite_facts import SuiteFacts
from serve_bench.core.variants import BUILT_IN_VARIANTS, with_env
from serve_bench.serving.child import Child
from serve_bench.store import read
from tests import places, records, servers
from tests.cases import Call, Capture, Patch, Refuses, cases

SECRET = "s3cr3t-value"
HASH = hash_value(SECRET)


def test_a_hash_is_the_same_everywhere_and_stays() -> None:
    assert hash_value("abc") == "sha256:ba7816bf"  # in every run, on every host
    assert hash_value(hash_value("abc")) == hash_value("abc") != hash_value("abd")
    assert hash_value("") == "" and hash_value(b"abc") == hash_value("abc")
    # It ends before what stands behind it: an address, then the name of a row.
    once = redaction.hide_in_text("url/r1/url=http://h/?token=abc")
    once += "/1-connection/replica-5.raw.txt"
    assert once.endswith("/1-connection/replica-5.raw.txt") and "abc" not in once.partition("?")[2]
    assert redaction.hide_in_text(once) == once
    # A failure holds no secret.
    failure = Failure("trial", f"no answer from http://h/?key={SECRET}", "now", detail=(SECRET,))
    for said in (failure_text(failure), jsonl.to_line(failure)):
        assert SECRET not in said and said.count(HASH) == 2


@cases(
    "name, value, is_kept",
    *(("RAY_SERVE_ENABLE_HA_PROXY", "1", True), ("RAY_BACKEND_LOG_LEVEL", "debug", True)),
    *(("OMP_NUM_THREADS", "1", True), ("SHARE", "-0.5", True), ("EMPTY", "", True)),
    *(("MY_TOKEN", SECRET, False), ("MODE", "fast", False), ("SHARE", "1e", False)),
    *(("RAY_AUTH_TOKEN", SECRET, False), ("RAY_REDIS_PASSWORD", SECRET, False)),
    ("DB", f"redis://:{SECRET}@h", False),
)
def test_flags_of_ray_and_numbers_are_kept(name: str, value: str, is_kept: bool) -> None:
    assert redaction.hide_env_value(name, value) == (value if is_kept else hash_value(value))


@cases(
    "text, hidden",
    (f"http://me:{SECRET}@h/x", f"http://{hash_value(f'me:{SECRET}')}@h/x"),
    (f"http://h/x?q={SECRET}&b={SECRET}#top", f"http://h/x?q={HASH}&b={HASH}#{hash_value('top')}"),
    (f"http://h?{SECRET}", f"http://h?{HASH}"),
    (f"http://h/a;v={SECRET};{SECRET}/b#{SECRET}", f"http://h/a;v={HASH};{HASH}/b#{HASH}"),
    (f"/a;v={SECRET}?{SECRET}", f"/a;v={HASH}?{HASH}"),
    (f"GET /rank?user={SECRET} failed", f"GET /rank?user={HASH} failed"),
    (f"a redis://:{SECRET}@h:1/0 b", f"a redis://{hash_value(f':{SECRET}')}@h:1/0 b"),
    ("http://h:8000/@me", "http://h:8000/@me"),
    ("http://[::1]:80/@me", "http://[::1]:80/@me"),
    ("is it a filter? (a seccomp filter?)", "is it a filter? (a seccomp filter?)"),
)
def test_addresses_in_texts(text: str, hidden: str) -> None:
    assert redaction.hide_in_text(text) == hidden
    assert redaction.hide_in_text(hidden) == hidden


@cases(
    "text",
    *(f"http://h/?q=ab{sign}{SECRET}" for sign in "?'(;@"),
    *(f"http://h/?a=1&api_tokens={SECRET}&b=2", f"http://h/?{SECRET}&a=1"),
    *(f"postgres://u:p@{SECRET}@h", f"postgres://u:p/{SECRET}@h/db", f"http://u:/{SECRET}@h"),
    f"redis://:{SECRET}@h:6379/0 and http://h:80/x",
)
def test_no_end_of_a_secret_is_left_in_an_address(text: str) -> None:
    hidden = redaction.hide_in_text(text)
    assert SECRET not in hidden and "sha256:" in hidden


@cases("flags", "-kH {}", "--header={}")
def test_hidden_requests(flags: str, tmp_path: Path, capsys: Capture, monkeypatch: Patch) -> None:
    header, body, query = "h-" + SECRET, json.dumps({"user": "b-" + SECRET}), "q-" + SECRET
    flag = [word.format(f"X-User: Bearer {header}") for word in flags.split()]
    path = f"a;v=v-{SECRET}?page={query}"
    said = f"no {header}, {b64encode(body.encode()).decode()}, {path}, b-{SECRET[:11]}..."
    answer = f"HTTP/1.1 500 No\r\nContent-Length: {len(said)}\r\n\r\n{said}".encode()
    monkeypatch.setitem(servers.ACTIONS, "repeats", servers._bytes(answer))
    out = str(tmp_path / "r")
    with servers.serving(lambda number: "repeats" if number % 2 else "ok") as server:
        about = [f"{server.url}{path}#f-{SECRET}", *flag, "--body", body, "-X", "POST"]
        lines = [["load", *about, "-n", "20", "-c", "1", "--out", out]]
        lines += [["report", out, "--format", form] for form in ("json", "csv", "markdown", "html")]
        lines += [["load", *about, "-c", "x"], ["load", *about, "-H", SECRET]]
        lines += [["load", about[0].replace("//", f"//u:{SECRET}@"), *about[1:]]]
        for words, code in zip(lines, (1, 0, 0, 0, 0, 2, 2, 2), strict=True):
            with pytest.raises(SystemExit, match=str(code)):
                main(words)
        assert all(f"page={query}".encode() in seen.head for seen in server.log)
    shown, err = capsys.readouterr()
    assert "20 sent = 10 completed" in shown and "500 No: no sha256:" in err
    files = [file for file in Path(out).rglob("*") if file.is_file() and "logs" not in file.parts]
    assert {"records.jsonl", "samples.jsonl"} <= {file.name for file in files}
    for text in (*(file.read_text() for file in files), shown, err):
        assert SECRET[:11] not in text and b64encode(body.encode()).decode()[:20] not in text
    run = read(tmp_path / "r").run
    assert run.argv[1].endswith(f"?page={hash_value(query)}#{hash_value(f'f-{SECRET}')}")
    assert f"X-User: {hash_value(f'Bearer {header}')}" in run.argv and hash_value(body) in run.argv
    (trial,) = read(tmp_path / "r").trials
    assert trial.key == run.plan[0].key
    assert trial.key.endswith(f"/{trial.row.connections}-connection")


def test_a_value_is_hidden_however_a_text_spells_it() -> None:
    value = 'to "k\xe9n" & <b>/ ' + SECRET
    hashed, data = hash_value(value), value.encode()
    for text in (
        *(value, json.dumps(value)[1:-1], json.dumps(json.dumps(value))[3:-3], repr(value)[1:-1]),
        *(repr(data)[2:-1], escape(value), quote(value, "").lower(), quote_plus(value)),
        *(b64encode(data).decode().rstrip("="), encodebytes(data).decode().rstrip("=\n")),
        *("\n  ".join(value[k : k + 5] for k in range(0, len(value), 5)), value[:-3]),
    ):
        assert hide(f"1 {text}") == f"1 {hashed}"
    assert hide(f"{value[:-3]}... {hashed}") == f"{hashed}... {hashed}"
    assert hide(f"{value[:-3]} and more") != hide(f"{hashed} and more")  # that is no cut
    assert hide("to no avail") == "to no avail"


@cases(
    "value, hidden",
    *(("s3cr3t", "s3cr3t"), ("Bearer abc-12345", "abc-12345"), ("12345678", "12345678")),
    *(('{"user": ["hunter2-x"]}', "hunter2-x"), ("user=hunter2-x&b=1", "hunter2-x")),
    *(("1", ""), ("abc12", ""), ("timeout", ""), ("1234567", ""), ("127.0.0.1:8000", "")),
    *(("/home/me/data", ""), ("localhost:80", ""), ("sha256", "")),
)
def test_plain_words_are_hidden_by_their_place_alone(value: str, hidden: str) -> None:
    assert redaction.hide_header(f"X-Any: {value}") == f"X-Any: {hash_value(value)}"
    text = f"seen: {hidden or value}, sha256:00000000"
    assert hide(text) == (text.replace(hidden, hash_value(value)) if hidden else text)


def test_the_log_of_a_process_that_has_ended_is_hidden(tmp_path: Path) -> None:
    hashed, log = hash_value(SECRET), tmp_path / "logs" / "child.log"
    says = f"print('{SECRET}', file=sys.stderr, flush=True); print('{{}}', flush=True)"
    answers = f"import sys; input(); {says}"  # a process that has ended could not be asked
    child = Child([sys.executable, "-c", answers], log=log, cwd=tmp_path, env={})
    with pytest.raises(KeyError):  # its answer is no event, and comes after the line
        child.ask("any", {}, 60)
    child.kill()
    child.wait()
    assert log.read_text() == f"{hashed}\n" and [*log.parent.iterdir()] == [log]


def test_nothing_of_the_environment_of_a_variant_is_in_a_record() -> None:
    used = with_env(VariantUsed("default"), {"MODE": SECRET, "OMP_NUM_THREADS": "1"})
    assert used.name == f"default+MODE={HASH}+OMP_NUM_THREADS=1"
    assert used.env["MODE"] == SECRET  # the cluster gets it
    has = {"replica": {"MODE": "other-" + SECRET, "OMP_NUM_THREADS": "1"}}
    proof = {**records.launch().proof, "flags": {"replica": {}}, "environment": has}
    launch = replace(records.launch(), variant=used, proof=proof)
    line = jsonl.to_line(launch)
    content = json.loads(line)
    assert SECRET not in line
    assert content["variant"]["env"] == {"MODE": HASH, "OMP_NUM_THREADS": "1"}
    assert content["proof"]["environment"]["replica"]["OMP_NUM_THREADS"] == "1"
    # The proof says what is wrong, then and from the record, without the value.
    stored = jsonl.from_json(content)
    assert isinstance(stored, type(launch))
    wrong = [f"MODE={HASH} is not in the environment of the replica"]
    assert contradictions(used, launch.proved) == wrong
    assert contradictions(stored.variant, stored.proved) == wrong
    shown = redaction.hide_suite(
        {"variants": [asdict(used)], "app": {"config": {"env_vars": {"A": SECRET}}}}
    )
    assert SECRET not in json.dumps(shown) and shown["variants"][0]["name"] == used.name


def test_of_options_the_addresses_are_hidden(call: Call) -> None:
    cell: dict[str, Any] = {"Shop.user_config.db": f"redis://:{SECRET}@h", "Shop.num_replicas": 2}
    proof = {"replicas": [{"user_config": cell}]}
    texts = [
        json.dumps(redaction.hide_suite({"cells": [cell]})),
        jsonl.to_line(Deploy("1", label_of(cell), 1.0, True, proof=proof)),
        trial_key("default", 1, label_of(cell), "1 client"),
    ]
    for text in texts:
        assert SECRET not in text and hash_value(f":{SECRET}") in text
    assert label_of(cell)["Shop.num_replicas"] == 2
    record = {"kind": "trial", "slots": {"KeyStore": 5}, "waits": {"get_token": [3, {"n": "a=b"}]}}
    assert redaction.hide_settings(record) == record  # no address and no environment
    # Of the environment no value is kept.
    for option in ("env", "a_env", "b_env"):
        assert redaction.hide_option(option, f"MODE={SECRET}") == f"MODE={HASH}"
        assert redaction.hide_option(option, "RAY_SERVE_X=1") == "RAY_SERVE_X=1"
    for words in ("micro --env", "versus --a default --b default --b-env"):
        out, err = call(*words.split(), f"MODE={SECRET}", "--dry-run")
        assert SECRET not in out + err and f"MODE={HASH}" in out


BUILT_IN = {name: variant.env for name, variant in BUILT_IN_VARIANTS.items()}


@cases(
    "suite, named",
    ({"variants": [{"name": "optimized", "env": BUILT_IN["optimized"]}], "app": "noop"}, []),
    ({"variants": [{"name": "x", "python": "/tmp/evil"}]}, ["the interpreter /tmp/evil"]),
    ({"variants": [{"name": "x", "env": {"LD_PRELOAD": "/"}}]}, ["the environment LD_PRELOAD"]),
    ({"sides": [{"label": "a", "variant": {"name": "x", "python": "p"}}]}, ["the interpreter p"]),
    ({"variants": [{"name": "x", "http_options": {"host": "::"}}]}, ["the HTTP option host"]),
    ({"variants": [{"name": "../x"}]}, ["the variant '../x'"]),
    ({"app": {"target": "evil:app"}}, ["the app evil:app"]),
    ({"load_on": {"address": "h:1"}, "address": "h:2"}, ["the Ray cluster h:2"]),
    ({"output_file_path": "/etc/x"}, ["the file /etc/x"]),
    ({"master_addr": "127.0.0.1"}, []),
    ({"master_addr": "10.0.0.1"}, ["the address 10.0.0.1"]),
)
def test_what_a_record_would_have_us_use(suite: dict[str, Any], named: list[str]) -> None:
    asked = built(SuiteFacts, suite, "suite")
    assert named_by(asked)[: len(named) or None] == named


def test_a_plan_that_is_named_again_must_be_the_stored_one() -> None:
    again = {"windows": 3, "variants": [{"name": "x", "env": {"MODE": "a"}}]}
    stored = redaction.hide_suite(again)
    assert redaction.differs(stored, again) is None
    other = {"windows": 3, "variants": [{"name": "x", "env": {"MODE": "b"}}]}
    assert (redaction.differs(stored, other) or "").startswith("variants.0.env.MODE is ")
    assert redaction.differs(stored, {**stored, "windows": 4}) == "windows is 4, and was 3"
    app, moved = ({"own": {"folder": at, "sources": ["shop.py"]}} for at in ("/a", "/b"))
    assert redaction.differs({"app": app}, {"app": moved}) == 'app.own.folder is "/b", and was "/a"'


def store_with(beside: Path, **suite: Any) -> str:
    """Store a run of micro with another suite; return the words that resume it."""
    whole = json.loads((places.FORMATS / "2-micro.jsonl").read_text().splitlines()[0])
    whole["suite"] |= suite
    (beside / "records.jsonl").write_text(json.dumps(whole) + "\n")
    return f"micro --resume {beside}"


def test_no_stored_interpreter_is_run(beside: Path, refuses: Refuses) -> None:
    evil = places.program(beside / "python", f"touch {beside / 'ran'}")
    line = store_with(beside, variants=[{"name": "default", "python": str(evil)}])
    refuses(line, f"names the interpreter {evil}")
    refuses(f"{line} --windows 3", "this is not the run in")
    assert not (beside / "ran").exists()


@cases(
    "damage",
    *({"variants": 5}, {"variants": [{"name": "x", "env": {"A": ["x"]}}]}),
    *({"load_on": {"nodes": "1"}}, {"sides": [{"variant": {"name": "x", "http_options": 5}}]}),
)
def test_a_suite_changed_by_hand(damage: dict[str, Any], beside: Path, refuses: Refuses) -> None:
    refuses(store_with(beside, **damage), "run.suite.")
