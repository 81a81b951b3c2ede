"""The pictures of the README and of docs/report.md, of a stored run.

    .venv/bin/python -m scripts.picture RUN docs/micro.svg     # its report as a terminal shows it
    .venv/bin/python -m scripts.picture RUN docs/report.png    # its page in Chromium

The run: `serve-bench micro --variant default,optimized --max-ongoing-requests 10000
--num-replicas 1`.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from serve_bench.cli.show import RunReport
from serve_bench.core.document import ReportOptions
from serve_bench.core.errors import visible
from serve_bench.report.terminal import STYLES, terminal_lines
from serve_bench.store import read

WIDTH = 88

#: Of a page: what the picture leaves out, and its size in pixels.
WITHOUT = "section:not([id=results]):not([id=throughput]):not([id=latency]):not([id=windows])"
SIZE = (1170, 1680)  # below 1,180 the contents stand above, and here nowhere


def main() -> None:
    """Draws, and says where."""
    run, to = Path(sys.argv[1]), Path(sys.argv[2])
    draw = page if to.suffix == ".png" else terminal
    draw(run, to)
    print(f"wrote {to}")


def page(run: Path, to: Path) -> None:
    """The page of a run: its head, its table, its charts."""
    browser = shutil.which("chromium")
    if browser is None:
        raise SystemExit("picture: no chromium on PATH")
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "page.html"
        report = [sys.executable, "-m", "serve_bench", "report", str(run), "--format", "html"]
        subprocess.run([*report, "-o", str(file)], check=True)
        hide = f"<style>{WITHOUT}, nav, .where {{ display: none }}</style></head>"
        file.write_text(file.read_text().replace("</head>", hide, 1))
        look = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        look += ["--virtual-time-budget=20000", f"--window-size={SIZE[0]},{SIZE[1]}"]
        look += [f"--user-data-dir={name}/user", f"--screenshot={to.absolute()}"]
        subprocess.run([browser, *look, f"file://{file}"], check=True, capture_output=True)


def terminal(run: Path, to: Path) -> None:
    """The report of a run in a terminal."""
    result = read(run)
    document = RunReport(result, ReportOptions(f"results/{run.name}")).document
    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    words = iter(("serve-bench", *result.run.argv))
    shown = [word for word in words if word != "--out" or not next(words)]
    console.print(Text(f"$ {' '.join(shown)}", style="bold green"))
    for line, tone in terminal_lines(document, WIDTH):
        console.print(Text(visible(line), style=STYLES[tone]), soft_wrap=True, highlight=False)
    svg = console.export_svg(title="serve-bench", theme=MONOKAI)
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)  # it asks the network for nothing
    to.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
