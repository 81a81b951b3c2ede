import json
import re
from pathlib import Path

from serve_bench.core.content import Content
from serve_bench.observing.profiler import SpyOptions
from serve_bench.runner.recording import Wish, raw_beside
from serve_bench.spec.profile import read_profile
from serve_bench.store.files import read_toml, shipped
from tests.cases import cases

PROFILES = shipped("profiles")
README = (PROFILES / "README.md").read_text()


def test_reference_profiles_are_whole_and_of_no_machine() -> None:
    files = {file.name: file.read_text() for file in (PROFILES / "reference").iterdir()}
    assert {"default-proxy.svg", "default-replica.svg", "optimized-replica.svg"} <= {*files}
    for name, text in files.items():
        assert f"(reference/{name})" in README and len(text) < 100_000
        assert not re.search(r"(?<![\w.])/(?:root|home|tmp|work|usr|opt)/|site-packages", text)
        if name.endswith(".svg"):
            assert text.rstrip().endswith("</svg>") and "ray/serve/_private/" in text
    for variant in ("default", "optimized"):
        cell = json.loads(files[f"{variant}.json"])
        assert cell["variant"]["name"] == variant
        assert [row["status"] for row in cell["rows"]] == ["measured", "profiled"]


def test_every_shipped_recipe_reads_and_is_in_the_readme() -> None:
    files = sorted(PROFILES.glob("*.toml"))
    assert {"proxy", "replica", "replica-native", "gil", "controller", "everything"} <= {
        file.stem for file in files
    }
    for file in files:
        data = read_toml(file)
        assert read_profile(Content(file.name, data)).target == data["target"]
        assert {"what", "why", "duration"} <= {*data}
        assert f"| `{file.stem}` |" in README


@cases(
    "out, place",
    (None, "profile-replica-7.svg"),
    ("x.svg", "x-replica-7.svg"),
    ("replica.svg", "replica-7.svg"),
    ("xreplica.svg", "xreplica-replica-7.svg"),
)
def test_a_file_of_several_has_its_role_and_pid(out: str | None, place: str) -> None:
    wish = Wish(1.0, SpyOptions(), out=None if out is None else Path("d", out))
    found = wish.place("replica", 7, True)
    assert found == (Path(place) if out is None else Path("d", place))
    assert raw_beside(found).name == place.replace(".svg", ".raw.txt")
    if out is not None:
        assert wish.place("replica", 7, False) == Path("d", out)
