"""A run of any kind as GitHub-flavoured Markdown, fit for a comment on a pull request.

Rule: the form is that of comment.py for all kinds; what is in it belongs to the module of the kind.
"""

from __future__ import annotations

from serve_bench.core.result import Result
from serve_bench.report.ladder.comment import ladder_comment
from serve_bench.report.micro.comment import rows_comment
from serve_bench.report.press.comment import press_comment
from serve_bench.report.ranker.comment import ranker_comment
from serve_bench.report.rpc.comment import rpc_comment
from serve_bench.report.scale.comment import scale_comment


def markdown(
    result: Result,
    published: bool = False,
    where: str | None = None,
    exclude_connect: bool = False,
) -> str:
    """The run as Markdown that ends with a newline. `exclude_connect` is for press alone: figures
    without the time to connect stand beside. A comparison has versus_markdown()."""
    command = result.run.command
    if command == "rpc":
        return rpc_comment(result, published, where)
    if command == "scale":
        return scale_comment(result, published, where)
    if command == "ranker":
        return ranker_comment(result, where)
    if result.run.suite.get("ladder") is not None:
        if command == "press":
            return press_comment(result, published, where, exclude_connect)
        return ladder_comment(result, published, where)
    return rows_comment(result, published, where)
