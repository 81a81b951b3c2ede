"""Pastes every command of the README, in order, into one fresh shell in an empty clone.

    scripts/bench readme [--clone FOLDER] [--skip WORD[,WORD...]] [--log FILE]

Prints the seconds and the exit code of each, which is where the times in the README come from. The
shell has no variables but HOME, PATH and LANG, and no .venv but the one that the README makes.
`--clone`: a clone that is there already; `--skip`: commands with one of these words are left out,
and named. Exit code 1 where a command failed; 3 is the answer of a gate.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
LIMIT_S: Final = 3600.0
FIRST: Final = ("make", "serve-bench", ".", "sleep", "kill")
"""First words of a line of the README that is a command; the other indented lines are output."""


def commands(readme: str) -> list[str]:
    """The commands that stand on lines of their own, as they would be pasted."""
    lines = re.findall(r"^    (\S.*)$", readme, re.MULTILINE)
    return [line for line in lines if line.split(" ")[0] in FIRST]


def paste(lines: Sequence[str], folder: Path, log: Path) -> Iterator[tuple[str, float, int]]:
    """Each line with its seconds and its exit code, from one shell; output goes to `log`."""
    kept = ("HOME", "PATH", "LANG")
    env = {name: os.environ[name] for name in kept if name in os.environ}
    with (
        log.open("wb") as out,
        subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-m"],
            cwd=folder,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=out,
            text=True,
        ) as shell,
    ):
        assert shell.stdin is not None and shell.stdout is not None
        for line in lines:
            began = time.monotonic()
            out.write(f"$ {line}\n".encode())
            out.flush()
            end = "" if line.endswith("&") else ";"
            shell.stdin.write(f"{{ {line}{end} }} >> {log} 2>&1 < /dev/null\necho done $?\n")
            shell.stdin.flush()
            answer = shell.stdout.readline().split()
            yield line, time.monotonic() - began, int(answer[1]) if answer else -1
        shell.stdin.close()


def main() -> int:
    """Pastes, and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--clone", type=Path)
    parser.add_argument("--skip", default="", metavar="WORD[,WORD...]")
    parser.add_argument("--log", type=Path, default=Path("results/readme.log"))
    options = parser.parse_args()
    options.log.parent.mkdir(parents=True, exist_ok=True)
    folder = options.clone
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="readme-")) / "serve-bench"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    words = [word for word in options.skip.split(",") if word]
    lines = commands((ROOT / "README.md").read_text(encoding="utf-8"))
    left = [line for line in lines if any(word in line for word in words)]
    failed = 0
    for line, seconds, code in paste(
        [line for line in lines if line not in left], folder, options.log.resolve()
    ):
        failed += code not in ((0, 3) if "--fail-on" in line else (0,))
        print(f"{seconds:7.1f} s  exit {code}  {line}", flush=True)
    for line in left:
        print(f"   skipped          {line}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
