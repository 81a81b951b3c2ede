"""What is kept of command lines, addresses and suites: no secret, and what is alike stays alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from serve_bench.analysis.comparing.match import unlike
from serve_bench.cli.profile_run import draw_profiles
from serve_bench.cli.program import run
from serve_bench.cli.progress import failure_text
from serve_bench.cli.sitting import next_launch
from serve_bench.core import record_lines as jsonl
from serve_bench.core.plan import label_of
from serve_bench.core.redaction import (
    differs,
    hashed,
    is_hash,
    kept_header,
    kept_name,
    kept_option,
    kept_record,
    kept_request,
    kept_suite,
    kept_text,
    kept_value,
    named_by,
    secret,
)
from serve_bench.core.result import Deploy, Failure, VariantUsed, result_of, trial_key
from serve_bench.core.variants import BUILT_IN_VARIANTS, with_env
from serve_bench.store import read
from tests import places, records
from tests.servers import serving

SECRET = "s3cr3t-value"


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        *(("Authorization", True), ("HF_TOKEN", True), ("DB_PASSWORD", True), ("api_key", True)),
        *(("AccessKeyId", True), ("Set-Cookie", True), ("client_secret", True), ("sig", True)),
        *(("max_tokens", False), ("tokenizer", False), ("user_id", False), ("key", True)),
        *(("keyspace", False), ("num_keys", False), ("max_tokens_per_batch", False)),
        *(("key_size", False), ("api_keys", True), ("max_api_key", True)),
        *(("API_TOKENS", True), ("n_tokens", False), ("max_new_tokens", False)),
        *(("RAY_SERVE_ENABLE_HA_PROXY", False), ("design", False), ("path", False)),
    ],
)
def test_names_of_secrets(name: str, is_one: bool) -> None:
    assert secret(name) is is_one


def test_a_hash_is_the_same_everywhere_and_stays() -> None:
    assert hashed("abc") == "hash-9f8ad5a3577565e1"  # in every run, on every host
    assert hashed(hashed("abc")) == hashed("abc") != hashed("abd")
    assert is_hash(hashed("abd")) and not is_hash("abd")


def test_addresses_and_headers() -> None:
    told = kept_text(f"http://me:{SECRET}@h/x?q=1&api_key={SECRET}&user_id=7")
    assert SECRET not in told and "q=1" in told and "user_id=7" in told
    assert told == kept_text(told)
    assert kept_header("Content-Type: text/plain") == "Content-Type: text/plain"
    assert kept_header(f"X-Whatever: {SECRET}") == f"X-Whatever: {hashed(SECRET)}"


def test_no_stored_run_holds_what_is_kept_otherwise_now() -> None:
    for file in places.FORMATS.glob("*.jsonl"):
        whole = [line for line in file.read_text().splitlines() if line.endswith("}")]
        for line in whole:  # the last may be cut off
            assert kept_record(json.loads(line)) == json.loads(line), file


@pytest.mark.process
@pytest.mark.parametrize("joined", ["-kH", "-H", "--header="])
def test_no_secret_of_a_load_is_in_its_records(joined: str, tmp_path: Path) -> None:
    header = f"Authorization: Bearer {SECRET}"
    flag = [joined + header] if joined.endswith("=") else [joined, header]
    with serving() as server:
        url = f"{server.url}?page=1&token={SECRET}"
        more = ["--body", f'{{"password": "{SECRET}"}}', "-X", "POST", "-n", "20", "-c", "1"]
        assert run(["load", url, *flag, *more, "--out", str(tmp_path / "r")]) == 0
        assert all(f"token={SECRET}".encode() in one.head for one in server.log)
    text = (tmp_path / "r" / "records.jsonl").read_text()
    assert SECRET not in text
    argv = read(tmp_path / "r").run.argv
    assert argv[0] == "load" and argv[1].endswith(f"?page=1&token={hashed(SECRET)}")
    assert f"Authorization: {hashed(f'Bearer {SECRET}')}" in argv
    assert argv[argv.index("--requests") + 1] == "20"
    (trial,) = read(tmp_path / "r").trials
    assert trial.key == read(tmp_path / "r").run.plan[0].key
    assert trial.key.endswith(f"/{trial.row.connections}-connection")


def test_no_secret_of_a_variant_is_in_its_name_or_record() -> None:
    used = with_env(VariantUsed("default"), {"MY_TOKEN": SECRET, "OMP_NUM_THREADS": "1"})
    assert used.name == f"default+MY_TOKEN={hashed(SECRET)}+OMP_NUM_THREADS=1"
    assert used.env["MY_TOKEN"] == SECRET  # the cluster gets it
    launch = records.launch()
    line = jsonl.to_line(type(launch)(**{**launch.__dict__, "variant": used}))
    assert SECRET not in line
    assert json.loads(line)["variant"]["env"] == {
        "MY_TOKEN": hashed(SECRET),
        "OMP_NUM_THREADS": "1",
    }


def test_values_of_a_file_of_headers_have_one_hash() -> None:
    """Each of its own would take 0.1 s of one core."""
    sets = [[["X-User", f"user {n}"], ["accept", "*/*"]] for n in range(50)]
    before = hashed.cache_info().misses
    kept = kept_request({"header_sets": sets})
    assert hashed.cache_info().misses == before + 1
    ((name, digest), plain) = kept["header_sets"][7]
    assert (name, plain) == ("X-User", ["accept", "*/*"]) and is_hash(digest)
    assert {one[0][1] for one in kept["header_sets"]} == {digest}
    assert kept_request(kept) == kept  # as it was recorded
    other = kept_request({"header_sets": sets[1:]})["header_sets"]
    assert other[0][0][1] != digest
    # A value that looks like a hash leaves none of the others as it is.
    mixed = [[["X-User", hashed("a")]], [["X-User", SECRET]]]
    assert SECRET not in json.dumps(kept_request({"header_sets": mixed}))


def test_runs_of_both_releases_with_one_request_are_alike() -> None:
    def of(asked: dict[str, Any]) -> Any:
        about = records.run()
        suite = {"name": "x", "app": {"target": "a:app", "asked": asked}}
        return result_of([type(about)(**{**about.__dict__, "command": "run", "suite": suite})])

    before = {"route": "/", "headers": [["accept", "*/*"]], "body": "e30="}
    now = kept_suite({"app": {"target": "a:app", "asked": before}})["app"]["asked"]
    assert now["body"] == hashed(b"{}") and now["body_bytes"] == 2
    assert unlike(of(before), of(now), ({}, {})) == ()
    other = dict(now) | {"body": hashed(b"[]")}
    assert [one.what for one in unlike(of(before), of(other), ({}, {}))] == ["request"]


# -------------------------------------------------------------------------- going on with a run

BUILT_IN = {name: one.env for name, one in BUILT_IN_VARIANTS.items()}


@pytest.mark.parametrize(
    ("suite", "named"),
    [
        ({"variants": [{"name": "optimized", "env": BUILT_IN["optimized"]}], "app": "noop"}, []),
        ({"variants": [{"name": "x", "python": "/tmp/evil"}]}, ["the interpreter /tmp/evil"]),
        (
            {"variants": [{"name": "x", "env": {"LD_PRELOAD": "/x"}}]},
            ["the environment LD_PRELOAD"],
        ),
        ({"sides": [{"variant": {"name": "x", "python": "p"}}]}, ["the interpreter p"]),
        ({"variants": [{"name": "x", "http_options": {"host": "::"}}]}, ["the HTTP option host"]),
        ({"variants": [{"name": "../x"}]}, ["the variant '../x'"]),
        ({"app": {"target": "evil:app"}}, ["the app evil:app"]),
        ({"load_on": {"address": "h:1"}, "address": "h:2"}, ["the Ray cluster h:2"]),
        ({"output_file_path": "/etc/x"}, ["the file /etc/x"]),
        ({"master_addr": "127.0.0.1"}, []),
        ({"master_addr": "10.0.0.1"}, ["the address 10.0.0.1"]),
    ],
)
def test_what_a_record_would_have_us_use(suite: dict[str, Any], named: list[str]) -> None:
    assert named_by(suite, BUILT_IN)[: len(named) or None] == named


def test_a_plan_that_is_named_again_must_be_the_stored_one() -> None:
    stored = kept_suite({"windows": 3, "variants": [{"name": "x", "env": {"A_TOKEN": "a"}}]})
    assert (
        differs(stored, {"windows": 3, "variants": [{"name": "x", "env": {"A_TOKEN": "a"}}]})
        is None
    )
    other = {"windows": 3, "variants": [{"name": "x", "env": {"A_TOKEN": "b"}}]}
    assert (differs(stored, other) or "").startswith("variants is ")
    assert (
        differs(stored, {"windows": 4, "variants": stored["variants"]}) == "windows is 4, and was 3"
    )
    app = {"own": {"folder": "/a", "sources": ["shop.py"]}}
    moved = {"own": {**app["own"], "folder": "/b"}}
    assert differs({"app": app}, {"app": moved}) == 'app.own.folder is "/b", and was "/a"'


def test_no_interpreter_that_a_record_alone_names_is_run(
    tmp_path: Path, refuses: Callable[[str, str], None]
) -> None:
    place = tmp_path.parent / f"{tmp_path.name}-record"
    place.mkdir()
    ran = place / "ran"
    evil = place / "python"
    evil.write_text(f"#!/bin/sh\ntouch {ran}\n")
    evil.chmod(0o755)
    whole = json.loads((places.FORMATS / "1-micro.jsonl").read_text().splitlines()[0])
    for variant in whole["suite"]["variants"]:
        variant["python"] = str(evil)
    (place / "records.jsonl").write_text(json.dumps(whole) + "\n")
    refuses(f"micro --resume {place}", f"names the interpreter {evil}")
    refuses(f"micro --resume {place} --windows 3", "this is not the run in")
    assert not ran.exists()


def test_no_flamegraph_is_drawn_outside_of_the_run(tmp_path: Path) -> None:
    outside = tmp_path / "outside" / "proxy-1.raw.txt"
    outside.parent.mkdir()
    outside.write_text("a;b 1\n")
    (tmp_path / "r").mkdir()
    trial = records.trial(records.planned(), profiled=True)
    for path in (str(outside), "../outside/proxy-1.raw.txt"):
        one = {"path": path, "role": "proxy", "pid": 1}
        draw_profiles(tmp_path / "r", [type(trial)(**{**trial.__dict__, "profiles": (one,)})])
    assert [file.name for file in outside.parent.iterdir()] == [outside.name]


# ------------------------------------------------------------------- what the issue names by word


@pytest.mark.parametrize(
    "text",
    [
        *(f"http://h/?token=ab{sign}{SECRET}" for sign in "?'(;@"),
        *(f"http://h/?key={SECRET}", f"http://h/?a=1&api_tokens={SECRET}&b=2"),
        *(f"postgres://u:p@{SECRET}@h", f"postgres://u:p/{SECRET}@h/db", f"http://u:/{SECRET}@h"),
        f"redis://:{SECRET}@h:6379/0 and http://h:80/x",
    ],
)
def test_no_end_of_a_secret_is_left_in_an_address(text: str) -> None:
    told = kept_text(text)
    assert SECRET not in told and "hash-" in told
    assert kept_text(told) == told


@pytest.mark.parametrize("text", ["http://h:8000/@me?x=1", "https://h/x@v1", "http://[::1]:80/@me"])
def test_an_at_sign_behind_the_host_is_none_of_a_user(text: str) -> None:
    assert kept_text(text) == text


def settings(value: Any) -> dict[str, Any]:
    """Settings that hold a secret, and such as only look like it."""
    return {
        "Shop.user_config.password": value,
        "KeyStore.num_replicas": 2,
        "user_config": {"api_keys": [value], "credentials": {"user": "a", "v": [value]}},
        "max_tokens": 100,
        "use_auth_token": True,
    }


@pytest.mark.parametrize("value", [123456, 1.5, SECRET])
def test_below_the_name_of_a_secret_nothing_of_settings_is_kept(value: Any) -> None:
    deploy = Deploy("1", {}, 1.0, True, proof={"replicas": [settings(value)]})
    told = [
        json.dumps(kept_suite({"cells": [settings(value)], "variants": 5})),
        json.dumps(kept_record({"kind": "trial", "cell": settings(value)})),
        jsonl.to_line(deploy),
        trial_key("default", 1, label_of(settings(value)), "1 client"),
    ]
    for text in told:
        assert str(value) not in text and hashed(str(value)) in text
    kept = kept_suite(settings(value))
    plain = (kept["KeyStore.num_replicas"], kept["max_tokens"], kept["use_auth_token"])
    assert plain == (2, 100, True)
    assert kept["user_config"]["credentials"]["user"] == hashed("a")


@pytest.mark.parametrize(
    "words",
    [
        ["micro", "--env", f"MY_TOKEN={SECRET}"],
        ["versus", "--a", "default", "--b", "default", "--b-env", f"MY_TOKEN={SECRET}"],
    ],
)
def test_no_secret_is_in_a_plan(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert SECRET not in out + err and f"MY_TOKEN={hashed(SECRET)}" in out


def test_no_secret_of_an_address_is_in_a_failure_that_is_shown() -> None:
    told = failure_text(Failure("trial", f"no answer from http://h/?key={SECRET}", "now"))
    assert SECRET not in told and hashed(SECRET) in told


def test_names_of_functions_and_deployments_hide_no_figures() -> None:
    record = {"kind": "trial", "slots": {"KeyStore": 5}, "waits": {"get_token": [3, {"n": 1}]}}
    assert kept_record(record) == record


def test_a_run_of_an_earlier_release_is_gone_on_with() -> None:
    """It kept a password that is a number, and the value of `--env key=abc`, in names of trials."""
    name = "Shop.user_config.password"
    cell: dict[str, Any] = {name: 123456}
    variant = VariantUsed("default+key=abc", env={"key": "abc"})
    key = f"{variant.name}/r1/{name}=123456/x"
    planned = replace(records.planned(), key=key, variant=variant.name, cell=cell)
    about = replace(records.run(planned), suite={"cells": [cell], "variants": [asdict(variant)]})
    stored = [
        json.dumps({"kind": one.KIND, **json.loads(json.dumps(asdict(one)))})
        for one in (about, records.trial(planned))
    ]
    earlier = jsonl.parse(stored)
    used = with_env(VariantUsed("default"), {"key": "abc"})
    now = trial_key(used.name, 1, label_of(cell), "x")
    assert [one.key for one in earlier.run.plan] == [one.key for one in earlier.trials] == [now]
    assert earlier.complete
    given = {"cells": [cell], "variants": [asdict(used)]}
    assert differs(earlier.run.suite, given) is None
    assert differs(earlier.run.suite, {**given, "cells": [{name: 123457}]}) is not None


# ------------------------------------------------------------------------------ damaged records


@pytest.mark.parametrize(
    "damage",
    [
        *({"variants": 5}, {"variants": [{"name": "x", "env": ["A"]}]}, {"load_on": "x"}),
        *({"variants": [{"name": "x", "env": {"A": ["x"]}}]}, {"load_on": {"nodes": 1, "no": 2}}),
        *({"sides": 3}, {"sides": [{"variant": {"name": "x", "http_options": 5}}]}),
    ],
)
def test_a_suite_that_a_hand_has_changed_is_refused_in_one_line(
    damage: dict[str, Any], tmp_path: Path, refuses: Callable[[str, str], None]
) -> None:
    place = tmp_path.parent / f"{tmp_path.name}-record"
    place.mkdir()
    stored = places.FORMATS / "1-micro.jsonl"
    whole = json.loads(stored.read_text().splitlines()[0])
    whole["suite"] |= damage
    (place / "records.jsonl").write_text(json.dumps(whole) + "\n")
    named = "the stored suite cannot be resumed: " if "no" in str(damage) else "run.suite."
    refuses(f"micro --resume {place}", named)


def test_logs_without_a_number_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for name in ("launch-3.log", "launch-x.log", "launch-.log", "launch-\u00b2.log"):
        (tmp_path / "logs" / name).touch()
    assert next_launch(tmp_path) == 4


@pytest.mark.parametrize(
    "entry",
    [
        *({"path": "a.raw.txt", "pid": 1}, {"path": "a.raw.txt", "role": "proxy"}, {"path": "/"}),
        *({"path": path, "role": "proxy", "pid": 1} for path in ("a\0b", "x" * 5000, "ring/a")),
    ],
)
def test_a_profile_that_cannot_be_drawn_is_passed_over(
    entry: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "a.raw.txt").write_text("a;b 1\n")
    (tmp_path / "ring").symlink_to(tmp_path / "ring")
    trial = replace(records.trial(records.planned(), profiled=True), profiles=(entry,))
    assert draw_profiles(tmp_path, [trial]) == []


def test_a_hash_ends_before_what_stands_behind_it() -> None:
    """The key of a trial and the path of its profile: an address, then the name of a row."""
    once = kept_text("url/r1/url=http://h/?token=abc") + "/1-connection/replica-5.raw.txt"
    assert once.endswith("/1-connection/replica-5.raw.txt") and "abc" not in once
    assert kept_text(once) == once
    like_one = "hash-0123456789abcdefg9"
    assert kept_text(f"http://h/?token={like_one}") == f"http://h/?token={hashed(like_one)}"


def test_names_of_sides_are_kept_as_their_options_are() -> None:
    assert kept_name("a+Shop.user_config.use_auth_token=True") == (
        "a+Shop.user_config.use_auth_token=True"
    )
    for option, value in (("user_config.credentials.pin", 1234), ("user_config.token", "a+b/c==")):
        label = f"a+Shop.{option}={kept_option(f'Shop.{option}', value)}"
        assert str(value) not in label and kept_name(label) == label
        assert kept_name(f"a+Shop.{option}={value}") == label
    plain = "a+KeyStore.ray_actor_options.accelerator_type=A100"
    assert kept_name(plain) == plain
    assert kept_option("KeyStore.ray_actor_options.accelerator_type", "A100") == "A100"
    raw = "default+HF_TOKEN=ab+cd/ef==+LEVEL=3"
    assert kept_name(raw) == f"default+HF_TOKEN={kept_value('HF_TOKEN', 'ab+cd/ef==')}+LEVEL=3"
