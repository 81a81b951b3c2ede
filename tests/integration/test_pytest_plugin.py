"""The plugin on a real Ray Serve: one cluster for several apps, its proof, its end by Ctrl-C."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import wait_for_line, wait_until_clean
from tests.places import begin

pytestmark = [pytest.mark.ray]

#: Two apps whose deployment has the same name: only an answer tells which one is in force.
APP = """
from ray import serve

@serve.deployment
class Word:
    def __init__(self, word):
        self.word = word
    def __call__(self, request):
        return self.word

app = Word.bind("{word}")
"""

TESTS = """
import urllib.request
import pytest

def said(url):
    return urllib.request.urlopen(url, timeout=10).read().decode()

def test_one_cluster_for_all(serve_target):
    one = serve_target.deploy("one.py:app")
    assert said(one) == "one"
    owner = serve_target.proof["port_owner"]
    assert owner["role"] == "proxy"
    assert serve_target.deploy("two.py:app", {"Word.num_replicas": 2}) == one
    assert said(one) == "two" and serve_target.cluster.replicas == {"Word": 2}
    assert serve_target.deploy("one:app") == one and said(one) == "one"
    assert serve_target.proof["port_owner"] == owner

def test_what_is_refused(serve_target):
    with pytest.raises(pytest.fail.Exception, match="did you mean 'Word'"):
        serve_target.deploy("one.py:app", {"Wrd.num_replicas": 2})
    with pytest.raises(pytest.fail.Exception, match="does not import: ModuleNotFoundError"):
        serve_target.deploy("broken.py:app")
    assert said(serve_target.url) == "one"

def test_the_figures(serve_benchmark, serve_target):
    found = serve_benchmark("one:app", "raw:2", requests=20, rounds=2, warmup_rounds=0)
    assert found.completed == 40 and found.replicas == {"Word": 1}
    assert found.variant == "default" and found.ray == serve_target.proof["versions"]["ray"]

def test_endless(serve_benchmark):
    print("endless", flush=True)
    serve_benchmark("one:app", "raw:2", requests=1000000, rounds=1, warmup_rounds=0)
"""


@pytest.mark.ci
def test_one_cluster_for_a_session_and_nothing_after_ctrl_c(tmp_path: Path) -> None:
    for word in ("one", "two"):
        (tmp_path / f"{word}.py").write_text(APP.format(word=word))
    (tmp_path / "broken.py").write_text("import not_there\n")
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    plugins = ("-p", "serve_bench.pytest_plugin", "-p", "pytest_benchmark.plugin")
    # pytest-benchmark makes no rounds where it takes itself for a worker of xdist.
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_XDIST")}
    env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_DEBUG_TEMPROOT": str(tmp_path)}
    words = (sys.executable, "-m", "pytest", "-vs", *plugins, "-p", "no:cacheprovider")
    process = begin(*words, cwd=tmp_path, env=env, stderr=subprocess.STDOUT)
    seen = wait_for_line(process, "endless|FAILED|ERROR").group()
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=60)[0]
    assert seen == "endless", rest
    assert process.returncode == pytest.ExitCode.INTERRUPTED, rest
    assert "3 passed" in rest
    assert wait_until_clean() == []
