import re
import sys
from pathlib import Path

import pytest

from tests.cases import Call, Patch, sure
from tests.observing.test_profiler import TWO
from tests.places import begin


@pytest.mark.ptrace
def test_a_process_becomes_a_flamegraph(call: Call, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    with begin(sys.executable, "-c", TWO, "60") as burning:  # ends by itself if the test fails
        assert sure(burning.stdout).readline() == "ready\n"
        profile = ("profile", "--pid", burning.pid)
        out, _ = call(*profile, "--duration", "1s", "-o", "out.svg")
        assert sorted(file.name for file in tmp_path.iterdir()) == ["out.raw.txt", "out.svg"]
        assert "hot (" in (tmp_path / "out.svg").read_text()
        assert re.search(r"wrote out\.svg and out\.raw\.txt \(\d+ samples\)", out)
        assert re.search(r"spend \(<string>\) +\d+\.\d +\d+\.\d", out)
        call(*profile, "--duration", "0.5", "-o", "b.svg")
        assert call("profile", "diff", "out.raw.txt", "b.raw.txt")[0].startswith("A out.raw.txt: ")
        assert "spend (<string>" in call(*profile, "--dump")[0]
        burning.kill()


def test_folders_are_merged_by_role(call: Call, tmp_path: Path) -> None:
    for variant, count in (("default", 30), ("optimized", 90)):
        folder = tmp_path / "run" / "profiles" / variant / "r1" / "cell" / "8-clients"
        folder.mkdir(parents=True)
        for pid in (1, 2):
            (folder / f"replica-{pid}.raw.txt").write_text(f"main (a.py:1);f (a.py:2) {count}\n")
        (folder / "proxy-9.raw.txt").write_text("p (p.py:1) 7\n")
    words = ("profile", "diff", "--run", tmp_path / "run", "default", "optimized")
    out, _ = call(*words)
    assert "A default (2 processes): 60 samples" in out
    assert "B optimized (2 processes): 180 samples" in out
    assert "A default: 7 samples" in call(*words, "--target", "proxy")[0]
    _, err = call(*words, "--target", "controller", code=2)
    assert "holds no profiles of controller" in err
