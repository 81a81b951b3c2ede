"""Nothing that is left names what was taken out: code, docs, examples, help and errors.

CHANGELOG.md says what went, and docs/bisect.md how `git bisect` does it.
"""

import re
import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
READ: Final = "*.py *.md *.toml *.yml *.yaml *.html *.js *.css scripts/* :!tests".split()
LEFT_OUT: Final = frozenset({"CHANGELOG.md", "docs/bisect.md"})

#: What went, by words that would name it.
GONE: Final = {
    "bisect": r"serve-bench bisect|BisectSuite|benchmarks[./]bisect",
    "factorial designs": r"serve-bench flags|factorial|FlagsSuite|benchmarks[./]flags\b",
    "duets": r"\bduets?\b|--pairing|foresight",
    "observers of tax": r"tax --observers|--observers\b",
    "ranker alone": r"serve-bench ranker|ranker\.md|roofline|[Cc]uda_?[Gg]raph|CUDA graph",
    "what-if": r"what[-_ ]if\b|\bUSL\b|\busl\b|Universal Scalability|operational bound",
    "wrk and ab as clients": r"--client (wrk|ab)\b|load[./]external|drive_external|ExternalResult",
    "levels of history": r"--fail-on step\b|analysis[./]history[./]levels",
    "spread by history": r"compare [^\n]*--history",
    "diff pages, perf": r"observing[./]perf\b|flamegraph\.js|profile_nodes|\.speedscope",
    "pictures by kind": r"rpc plot|draw_plots|cache_folder|XDG_CACHE_HOME",
    "OTLP and hgrm": r"otlp|hgrm",
    "rounds of our own": r"counted_rounds|CountedRounds",
    "format 1": r"tests/formats/1-|\"1-[a-z]+\.jsonl|kept_names|named_now|\bmcq\b",
    "byte corpus": r"contracts\.json|sequences\.txt",
}


def test_nothing_names_what_went() -> None:
    listed = subprocess.run(
        ["git", "ls-files", *READ], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = [
        f"{path}:{number}: {name}: {line.strip()}"
        for path in listed.stdout.splitlines()
        if path not in LEFT_OUT and (ROOT / path).is_file()
        for number, line in enumerate((ROOT / path).read_text(encoding="utf-8").splitlines(), 1)
        for name, words in GONE.items()
        if re.search(words, line)
    ]
    assert found == []


def test_the_words_find_what_they_name() -> None:
    """So that none of them is spelt so that it can never be found."""
    samples = (
        *("serve-bench bisect", "serve-bench flags", "a duet", "tax --observers", "ranker.md"),
        *("the what-if", "--client wrk", "--fail-on step", "compare a b --history d"),
        *("observing/perf", "rpc plot", "file.otlp.json", "counted_rounds", "bs1-mcq5"),
        "contracts.json.xz",
    )
    found = (re.sub("-mcq", " mcq ", sample) for sample in samples)
    for (name, words), sample in zip(GONE.items(), found, strict=True):
        assert re.search(words, sample), name
