"""Commands as typer parses them, made of their options: panel, common or not, shape of a value.

Rule: what runs a command is imported when it is called, by `find`. A name means the same in all
commands, so all three are said once, by name. An option in no list of a panel is what is measured,
as are the axes of a deployment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from functools import partial
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from serve_bench.cli import find
from serve_bench.cli.command import Options
from serve_bench.cli.completion import COMPLETED, complete
from serve_bench.core.errors import BadInput
from serve_bench.core.spec import Option

USUAL_SHARE: Final = "1%"
"""Of a `--trace` without a share."""

PANELS: Final[Mapping[str, str]] = {
    name: panel
    for panel, names in {
        "Load": """clients connections users rate arrivals stages ramp count duration timeout
            timeout_s connect_timeout_s windows window_seconds warmup warmup_s
            max_connections processes client keepalive retries honor_retry_after route method header
            headers body paths draw expect_status expect_body requests_per_client requests samples
            data_size unix_socket insecure cacert seconds episodes steps rounds all_rounds launches
            quick budget_s max_row_seconds num_queries batch start precision launch_s need protocol
            events event_timeout_s bodies openai model input_tokens output_tokens
            allow_late requests_file""",
        "Server": """variant env a_env b_env python a_python b_python host port address nodes
            replicas master_addr master_port backend request_timeout_s grpc_servicer call""",
        "Output": """out output format published perf_metrics trace_out exclude_connect as_json
            plot chart verbose live log_requests output_file_path threshold gate fail_on leak
            slo strict_host""",
        "Advanced": """suite resume dry_run profile trace no_sample serve_metrics load_on load_nodes
            seed slice_s spin noise recipe native gil idle threads
            policy_ms force session_sd""",
    }.items()
    for name in names.split()
}
ORDER: Final = ("What", "Load", "Server", "Output", "Advanced")

MOST_LINES: Final = 40
"""Of a `--help`. One that would be longer lists the common options alone."""

COMMON: Final = frozenset(
    """option app url a b aa each_flag num_replicas max_batch_size max_ongoing_requests
    ranker_replicas layers world_size backend batch metric last route method body header
    clients connections count users windows quick launches rounds duration rate
    stages faults need num_queries variant blocking port out output verbose plot format
    published slo threshold fail_on dry_run resume profile help help_all""".split()
)

_SHAPES: Final[Mapping[str, str]] = {
    name: shape
    for shape, names in {
        "N[,N...]": "replicas",
        "NAME": "app app_name call model deployment recipe variant cell row",
        "NAME=VALUE": "env a_env b_env",
        "MODULE.FUNCTION": "grpc_servicer",
        "OPTION=VALUE": "option a_option b_option",
        "NAME=VALUE[,VALUE...]": "arg",
        "'NAME: VALUE'": "header",
        "NAME=URL": "url",
        "NAME=LIMIT[,...]": "slo",
        "RATE": "rate start",
        "FILE": """suite perf_metrics trace_out log_requests plot cacert output_file_path output
            bodies paths headers""",
        "FOLDER": "out resume noise run",
        "PATH": "route unix_socket",
        "PROGRAM": "python a_python b_python",
        "HOST:PORT": "address load_on",
        "HOST": "host",
        "TEXT or @FILE": "body expect_body",
        "RATE:DURATION,...": "stages",
        "METRIC[,METRIC...]": "gate metric",
        "WORD[,WORD...]": "fail_on",
        "ROLE[,ROLE...]": "profile",
        "SIDE": "a b",
        "FORMAT": "format",
        "METHOD": "method",
        "WORD": "batch live",
        "MS": "event_gap_ms",
        "SECONDS": "batch_wait_timeout_s",
    }.items()
    for name in names.split()
}


def _make_parameter(option: Option) -> TyperOption | TyperArgument:
    """Make a parser's parameter of an option: a switch, a text, or a list of texts.

    Its Opt or its type describes its text, else its name, as in all commands."""
    name, opt, words, shape = option.name, option.opt, option.words, option.shape or ""
    if not opt.shape and shape.partition("[")[0] in ("TEXT", "NUMBER", "PATH"):
        named = _SHAPES.get(name, shape)
        shape = f"{named}[,{named}...]" if option.listed and name in _SHAPES else named
    common: dict[str, Any] = {"metavar": shape or None, "help": option.help, "show_default": False}
    if words or name in COMPLETED:
        common["autocompletion"] = partial(complete, name, words)
    if not opt.named:
        nargs, required = -1 if option.repeated else None, option.default is MISSING
        return TyperArgument(param_decls=[name], nargs=nargs, required=required, **common)
    if option.is_switch:
        common |= {"is_flag": True, "default": option.default}
    flags = opt.spellings or (option.flag,)
    return TyperOption(param_decls=[name, *flags], multiple=option.repeated, **common)


if TYPE_CHECKING:
    _Parser = TyperCommand
else:
    _Parser = object


#: Keys of a context: the help shows all options; it shows the common ones alone.
_WHOLE: Final = "serve_bench.whole"
_SHORT: Final = "serve_bench.short"
_OF_HELP: Final = ("help", "help_all")


def _show_all(context: Any, _option: Any, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        context.meta[_WHOLE] = True
        typer.echo(context.get_help())
        context.exit()


_HELP_ALL: Final = TyperOption(
    param_decls=["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show all options and exit.",
)


class Panels(_Parser):
    """Help in panels, and a command line that says nothing twice.

    Without rich: its import slows the start. `place`: of the function of these options that runs
    the command; without one its help is printed."""

    def __init__(self, options: type[Options], place: str = "", **settings: Any) -> None:
        self.options, self.place = options, place
        super().__init__(
            name=None,
            params=[*map(_make_parameter, options.parameters().values()), _HELP_ALL],
            callback=self.call,
            help=cleandoc(options.__doc__ or ""),
            rich_markup_mode=None,
            **settings,
        )

    def call(self, context: Any, **values: Any) -> Any:
        """Run the command, unless one below it is called. Returns the exit code."""
        options = self.options.of(values)
        if context.invoked_subcommand is not None:
            return None
        if not self.place:
            return typer.echo(context.get_help())
        try:
            return find(self.place)(options)
        except KeyboardInterrupt:  # of which typer would end without a word
            raise typer.Abort from None

    def get_help(self, ctx: Any) -> str:
        """Return the whole help, or that of the common options where the whole is long."""
        whole = super().get_help(ctx)
        if _WHOLE in ctx.meta or len(whole.splitlines()) <= MOST_LINES:
            return whole
        ctx.meta[_SHORT] = True
        return super().get_help(ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Raise BadInput on an option that is given twice and takes one value.

        A `--trace` without a share gets one: typer has no value that may be left out. That of
        `noop` takes none."""
        options: Sequence[Any] = self.params
        takes_share = any(option.name == "trace" and not option.is_flag for option in options)
        if takes_share and "--trace" in args:
            place = args.index("--trace") + 1
            if not args[place:] or args[place].startswith("-"):
                args = [*args[:place], USUAL_SHARE, *args[place:]]
        if not ctx.resilient_parsing:
            given: list[Any] = self.make_parser(ctx).parse_args([*args])[2]
            more = (param for param in dict.fromkeys(given) if given.count(param) > 1)
            for param in more:
                if not (param.multiple or (param.is_flag and not param.secondary_opts)):
                    flag = next(name for name in param.opts if name.startswith("--"))
                    raise BadInput(f"{flag}: is given twice; it takes one value")
        remaining = super().parse_args(ctx, args)
        ctx.params["context"] = ctx  # for `call`
        return remaining

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the panels; of a short help one list."""
        short = _SHORT in ctx.meta
        of_help = ORDER[-1] if short else "Output"
        panels: dict[str, list[tuple[str, str]]] = {name: [] for name in ("Arguments", *ORDER)}
        params: Sequence[Any] = self.get_params(ctx)
        for param in params:
            if (record := param.get_help_record(ctx)) is None:
                continue
            if param.param_type_name == "argument":
                panels["Arguments"].append((param.metavar or param.name, record[1]))
            elif param.name in COMMON if short else param.name != "help_all":
                panel = of_help if param.name in _OF_HELP else PANELS.get(param.name, ORDER[0])
                panels[panel].append(record)
        if short:
            common = [record for panel in ORDER for record in panels[panel]]
            panels = {"Arguments": panels["Arguments"], "Common options": common}
        for title, records in panels.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
        if any("DURATION" in shown for records in panels.values() for shown, _ in records):
            formatter.write_text("DURATION: a time, such as 500ms, 10s or 2m.")


class Command(Panels, TyperCommand):
    """A command whose options stand in panels."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return `[OPTIONS] URL`: arguments as their help shows them."""
        arguments = (param for param in self.get_params(ctx) if param.param_type_name == "argument")
        return ["[OPTIONS]", *(str(param.metavar or param.name) for param in arguments)]


class CommandGroup(Panels, TyperGroup):
    """A command in panels with others below it, without which it runs, too."""

    def __init__(self, options: type[Options], place: str = "", **settings: Any) -> None:
        super().__init__(options, place, invoke_without_command=True, **settings)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return `[OPTIONS] [COMMAND] [ARGS]...`: a command may be left out."""
        return ["[OPTIONS]", "[COMMAND]", "[ARGS]..."]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the panels, then the commands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)
