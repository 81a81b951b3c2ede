"""The picture of the README: the report of a stored run as a terminal shows it, in colour, as SVG.

    .venv/bin/python -m scripts.picture RUN docs/micro.svg

The run: `serve-bench micro --variant default,optimized --max-ongoing-requests 10000
--num-replicas 1`.
"""

from __future__ import annotations

import io
import re
import sys
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


def main() -> None:
    """Draws, and says where."""
    run, to = Path(sys.argv[1]), Path(sys.argv[2])
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
    print(f"wrote {to}")


if __name__ == "__main__":
    main()
