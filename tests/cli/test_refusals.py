import os
import re

import pytest

from serve_bench.benchmarks.commands import COMMANDS
from serve_bench.cli.command import Options
from serve_bench.cli.program import load_command
from serve_bench.spec.axes import axis_options
from tests.cases import Refuses, refusal
from tests.places import FORMATS, TOP

MICRO = FORMATS / "2-micro.jsonl"

SUITE = TOP / "scenarios" / "micro.toml"
SERVICED = "a:b --protocol grpc --grpc-servicer c.d"
URL = "http://127.0.0.1:9/"
LOADING = (
    *(f"load {URL}", "micro --quick", "noop", "sweep", "press --app noop"),
    *(f"{command} --url a={URL}" for command in ("sweep", "press", "recsys")),
)
NOT_THERE = "--load-on: 'there' is not allowed; it takes ray, or HOST:PORT of a Ray"

BAD = {
    "": [
        (f"micro --suite ./{'s' * 300}.toml", "sss.toml: cannot be reached: file name too long"),
        ("micro --max-concurrent-queries -3", "--max-ongoing-requests: '-3' is not allowed"),
        ("micro --trace 1% --clients 8", "--trace: is for rows of the raw client"),
        ("trace noop --route /x", "--route: noop measures an app that comes with the tool"),
        ("trace ray_microbenchmarks", "TARGET: the suite ray_microbenchmarks.toml has cells"),
        ("load http://127.0.0.1:9/ --trace --client aiohttp", "--trace: is for rows of the raw"),
        ("micro --trace-out t.json", "--trace-out: goes with --trace"),
        ("micro --trace 1% --trace-out -", "--trace-out: - is not allowed; it takes a file"),
        ("micro --trace 1% --trace-out .", "--trace-out: . is a folder; it takes a file"),
        ("versus --a default --b optimized --trace 1% --clients 8", "--trace: is for rows"),
        ("micro --trace 1% --load-on ray", "--trace: the times of a load from nodes are"),
        ("micro --env FOO", "--env: 'sha256:9520437c' is not allowed; it takes NAME=VALUE"),
        (f"micro --resume {MICRO} --quick", "--resume follows the stored plan"),
        ("--bogus", "No such option: --bogus"),
        ("run --optoin x", "No such option: --optoin; did you mean --option?"),
        ("mirco", "No such command 'mirco'. Did you mean 'micro'? (see"),
        ("micro --variant haproxi", "unknown variant 'haproxi'; did you mean 'haproxy'?"),
        ("micro --app rankr", "--app: unknown app 'rankr'; did you mean 'ranker'?"),
        ("micro --suite micr", "; did you mean 'micro'?"),
        ("micro --protocol http,strem", "; did you mean 'stream'?"),
        ("history x --metric thruput,p99", "; did you mean 'throughput'?"),
        ("load http://h/ --keepalive --no-keepalive", "--keepalive: is given twice"),
        ("micro more words", "Got unexpected extra argument(s) (more words)"),
        ("micro --clients raw:0", "--clients: 'raw:0' is not allowed; it takes N (aiohttp)"),
        ("soak", "TARGET: name an app (module:app, path/file.py:app), a suite, or --url"),
        ("soak noop --rate 5 --clients raw:3", "--rate: an open loop has no --clients"),
        ("soak noop --clients 8", "--clients"),
        ("soak noop --arrivals poisson", "--arrivals"),
        ("soak noop --fail-on slo", "--fail-on"),
        ("soak noop --route /x", "--route"),
        (f"soak noop --resume {FORMATS}/2-soak.jsonl --for 1m", "--resume"),
        ("soak --url http://127.0.0.1:1/", "--url: no Serve of this host answers at"),
        ("profile --pid 0", "no process 0: it has ended, or never was"),
        (f"compare {MICRO} {MICRO} --variant-a nobody", "--variant-a: no variant 'nobody' in that"),
        ("noop --port 70000", "--port: 70000 is not allowed; it takes 1 to 65535"),
        ("noop --port 0 --host 192.0.2.77", "--host: 192.0.2.77 is no address of this machine"),
        ("micro --suite /dev/zero", "/dev/zero: is not a file"),
        ("doctor --python nosuch", "--python: "),
        (f"report {FORMATS}/2-load.jsonl -f classic", "--format: 'classic' is not allowed; it"),
        (f"report {MICRO} --threshold 2%", "--threshold: for the report of one run of versus"),
        ("bogus", "No such command 'bogus' (see"),
        ("press --app noop --clients 900000", "--clients: 900000 connections need"),
        ("press --log-level info,INFO", "--log-level: INFO is given twice"),
        ("press --callable sync --max-batch-size 4", "max_batch_size"),
        ("soak noop --quick --for 2m", "--quick: stands for --for"),
        ("press --log-requests /dev/null", "--log-requests: /dev/null exists already"),
        ("press --suite micro --app noop", "--app: a suite names its app"),
        ("press --suite micro", "--suite: micro needs app ="),
        ("press --log-requests /nowhere/x", "--log-requests: the folder of /nowhere/x does not"),
        ("press --url http://h/ --url http://i/", "--url: 'http://h/' is not allowed; of several"),
        ("press -H Token:x", "--header: is for --url"),
        ("recsys --url a=ftp://h/", "--url: unknown scheme 'ftp'"),
        ("recsys --url a=http://h/?user_id=3", "is not allowed; ?user_id=... is added to it"),
        ("sweep --url a=http://h/ --app noop", "it does not go with --app"),
        ("sweep noop --num-replicas 1 --option num_replicas=3", "--option: num_replicas is given"),
        ("sweep ray_microbenchmarks", "sweep: the suite ray_microbenchmarks.toml has cells"),
        ("micro --suite press_noop --clients 1", "--clients: the suite has users; give one of"),
        ("tax noop --suite press_noop", "load.users: rows are compared, not loads that grow"),
        (
            "capacity noop --slo p99=1s --option num_replicas=1 --option num_replicas=2",
            "--option: num_replicas is given twice",
        ),
        ("press --load-on ray --log-requests x.csv", "--log-requests: needs the load of this host"),
        *((f"{line} --load-on there", NOT_THERE) for line in LOADING),
        ("micro --ranker tuned", "--ranker: the app noop has no ranker; it is for ranker, recsys"),
        ("micro --app ranker --data-size large", "--data-size: the app ranker takes no body"),
    ],
    "run": [
        ("", "TARGET: name an app (module:app, path/file.py:app) or a suite"),
        ("gone.toml", "gone.toml: cannot be read: no such file"),
        ("a:b --route best?key=secret", "--route: 'best?...' does not begin with /"),
        ("a:b --requests-file p -X PUT", "--requests-file: is asked for instead of --method"),
        ("a:b --requests-file p --protocol handle", "--requests-file: has no use with --protocol"),
        ("a:b --draw random", "--draw: give --bodies, --paths or --headers with two or more"),
        ("a:b word", "NAME=VALUE: 'word' is not allowed; it takes name=value"),
        ("a:b --arg word=", "--arg: 'word=' is not allowed; it takes name=value"),
        (f"{SUITE} --window-seconds 100h", "--window-seconds: 10 such windows are longer"),
        (f"{SUITE} word=a", "word=a: "),
        (f"--resume {FORMATS}/2-run.jsonl", "names the environment OMP_NUM_THREADS, the app "),
        ("a:b --openai --model m --protocol http,stream", "--openai: is a stream, not http,stream"),
        ("a:b --protocol grpc", "--protocol grpc: give --grpc-servicer, the function that adds"),
        (f"{SERVICED} --grpc-servicer c.d", "--grpc-servicer: c.d is given twice"),
        (SERVICED, "--route: the path '/' names no method of gRPC"),
        (f"{SERVICED} --route /x.Y/Z --expect-status 200", "--expect-status: has no use with"),
        ("a:b --protocol grpc --grpc-servicer=", "--grpc-servicer: '' is not allowed"),
        ("a:b --call x", "--call: goes with --protocol handle"),
        ("a:b --protocol handle --route /x", "--route: has no use with --protocol handle"),
        ("a:b --protocol handle --call caf\u00e9", "is not allowed; it takes the name of a method"),
        ("a:b --protocol handle -H x:1", "--header: x: a handle has none but content-type"),
        ("a:b --protocol handle --body 1x -H content-type:application/json", "--body: is no JSON"),
    ],
    "load": [
        ("", "Missing argument 'URL'"),
        (f"{URL} --load-nodes 2", "--load-nodes: goes with --load-on ray"),
        (f"{URL} --load-on ray --load-nodes 0", "--load-nodes: 0 is not allowed; it takes 1 to 10"),
        (f"{URL} --load-on 127.0.0.1:9", "--load-on: no Ray cluster at 127.0.0.1:9: connection"),
        (f"{URL} --load-on ray --profile proxy", "--profile: does not go with --load-on"),
        ("http://h:99999/", "URL: bad port in 'http://h:99999/'; allowed: 1 to 65535"),
        ("http://h/ -n x.har", "a whole number from 0; a file of them is a --requests-file"),
        ("http://h/ -c 0", "connections must be 1 or more"),
        ("http://h/ -c 10 -n 5", "--requests must be at least the number of connections (10), got"),
        ("http://h/ -n 50 -d 5s", "--requests: give a number of requests or --duration"),
        ("http://h/ -n 50 --stages 5:1s", "--requests: give a number of requests or --stages"),
        ("http://h/ --stages 100", "--stages: '100' is not allowed; it takes RATE:DURATION"),
        ("http://h/ --stages 5:1s -d 5s", "--duration: stages have durations of their own"),
        ("http://h/ --ramp", "ramp needs stages"),
        ("http://h/ --body @nosuch", "--body: nosuch cannot be read: no such file"),
        ("http://h/ --header x", "--header: 'sha256:2d711642' is not allowed; it takes 'Name:"),
        ("http://h/ --spin", "spin is for an open loop"),
        ("http://h/ --profile all --unix-socket s", "--profile: does not go with --unix-socket"),
        ("http://[::1/", "URL: 'http://[::1/' cannot be read"),
        ("http://h/ -c 999999", "--connections: 999999 connections need 1000031 open files"),
        ("http://h/ -r 5 --max-connections 5", "--max-connections must be at least connections"),
        ("http://h/ --body @", "--body: '@' is not allowed; it takes text or @FILE"),
        ("http://h/ --header X:\u03a9", "--header X: only ASCII is allowed"),
        ("http://h/ --warmup 2s -n 50", "--warmup: a load with --requests has none"),
        ("http://h/ --arrivals poisson", "--arrivals: give --rate or --stages"),
        ("http://h/ --paths -", "--paths: '-' is not allowed; it takes a file"),
        ("https://h/ -k --cacert x", "--cacert: has no use with --insecure"),
        ("http://h/ --cacert x", "--cacert: is for https://"),
        ("https://h/ --cacert nosuch", "--cacert: CA file nosuch: no such file"),
        ("http://h/ --events sse", "--events: goes with the protocol stream"),
        ("http://h/ --protocol stream --expect-body x", "--expect-body has no use with a"),
        ("http://h/ --protocol stream --expect-status 404", "only a status of 2xx"),
        ("http://h/ --openai", "--openai: give --model, or bodies of your own (--bodies)"),
        ("http://h/ --model m", "--model: goes with --openai"),
        ("http://h/ --openai --model m --events sse", "--events: --openai has its own"),
        ("http://h/ --openai --body {}", 'openai: body 1 is no JSON object with "stream": true'),
        ("http://h/ --openai --body {} --model m", "--model: has no use with --body or"),
        ("http://h/ --openai --model m --output-tokens 1,x", "--output-tokens: '1,x' is not"),
        ("http://h/ --out --slo", "--out: '--slo' is not allowed; it takes a path (./--name"),
        ("http://h/ --protocol stream --client aiohttp", "--protocol stream is for the clients"),
        ("http://h/ --protocol grpc --client aiohttp", "--client: aiohttp speaks no gRPC"),
    ],
    "compare": [
        ("nosuch other", "nosuch: no such folder"),
        ("a b --gate p90", "--gate: 'p90' is not allowed; it takes throughput, p50, p99, cpu"),
        ("a b --noise nosuch", "--noise: nosuch: no such folder"),
    ],
    "tax": [
        (f"noop --seed {'9' * 400}", "--seed: '99999999"),
        ("nothing", "TARGET: 'nothing' is not allowed; it takes noop, or your own app"),
        ("--layers uvcorn", "--layers: 'uvcorn' is not allowed"),
        ("--protocol grpc", "--protocol: 'grpc' is not allowed; it takes http or stream"),
        ("--clients 8", "--clients: '8' is not allowed; it takes raw:N"),
        ("--option nope=1", "--option: "),
    ],
    "timeline": [
        ("", "TARGET: name an app"),
        ("nothing", "TARGET: 'nothing' is no suite of timeline"),
        ("autoscale_step --fault kill:replica:Shop@3s", "no deployment Shop"),
        ("autoscale_step --slo p99=40s", "its limit is above the time-out of 30 s"),
        ("noop.toml --stages 5:5s", "noop.toml"),
        ("--url http://127.0.0.1:1/ --nodes 2 --fault deploy@1s", "not go with --fault, --nodes"),
        ("--url http://127.0.0.1:1/ --stages 5:1s --slo p99=100s", "--slo: p99: its limit is"),
        ("--url http://127.0.0.1:1/", "--stages: say the load over time"),
    ],
    "history": [
        (".", "no run found (no records.jsonl in it or below)"),
        (". --plot x.pdf", "--plot: x.pdf is not allowed; it takes a file"),
        (". --plot no/x.png", "--plot: the folder of no/x.png does not exist"),
    ],
    "versus": [
        ("", "--a: is missing"),
        ("--rounds 0", "--rounds: '0' is not allowed; it takes a whole number from 1"),
        ("--rounds +9999999", "--rounds: '+9999999' is not allowed; it takes a whole number"),
        ("--a default --b optimized --rounds +6", "--rounds: +6 adds rounds to a run"),
        ("--a http://h --b http://h/", "--a, --b: both are h: use --aa for the noise floor"),
        ("--a x=http://h/ --b optimized", "--b: the other side is a service that is up already"),
        ("--a ftp://h/ --b http://h/", "--a: unknown scheme 'ftp'"),
        ("--a http://h/ --b http://i/ --budget 5m --b-option x=1", "does not go with --budget"),
        ("--a default --b default --b-env A=1 --b-env A=2", "--b-env: A is given twice"),
        (f"--resume {FORMATS}/2-versus.jsonl --quick --seed 3", "not go with --quick, --seed"),
    ],
    "profile": [
        ("", "name what to profile: --pid PID, --target ROLE or --recipe NAME"),
        ("--recipe proxi", "--recipe: no 'proxi'; a path, or one of: controller, everything"),
        ("diff no.txt no.txt", "no profile 'no.txt': neither a file nor a folder at"),
        (f"--pid {os.getpid()} -o .", "-o: . is a folder; it takes a file"),
        ("--pid 1 -o x.html", "-o: x.html is not allowed; it takes a file that ends in"),
        ("--list --rate 5", "--rate: does not go with --list, which shows every Serve"),
    ],
    "scale": [
        ("chain --fanout 3", "No such option"),
        ("single --replicas 1,2", "--replicas: takes one number; several are for scale curve"),
        ("single --suite scale_multi", "scale_multi.toml: is a suite of serve-bench scale multi"),
        ("single --address ray://a:10001", "--address: 'ray://a:10001' is not allowed"),
        ("single --address no.such.invalid:6379", "--address: no Ray cluster at"),
        ("single --address a:1 --nodes 2", "--nodes: starts raylets here; it does not go with"),
        ("single --address a:1 --variant haproxy", "--variant and --env do not go with --address"),
    ],
}

LINES = [(f"{name} {line}".strip(), message) for name, bad in BAD.items() for line, message in bad]


@pytest.mark.parametrize("command", dict.fromkeys(line.partition(" ")[0] for line, _ in LINES))
def test_bad_input_is_one_line(command: str, refuses: Refuses) -> None:
    for line, message in LINES:
        if line.partition(" ")[0] == command:
            refuses(line, message)


NAMES = [name for group in COMMANDS.values() for name in group]


#: The most of what an option takes, and its unit.
LIMITS = re.compile(r"(?:from|above) \S+ (?:to|and up to) (\d+)([a-z/%]+)")


def list_options(kind: type[Options] = Options) -> list[type[Options]]:
    return [kind, *(option for below in kind.__subclasses__() for option in list_options(below))]


def test_a_flag_takes_what_it_declares_and_no_empty_text() -> None:
    """So that no line above has to say the words and bounds of a flag once more."""
    for name in NAMES:
        load_command(name)
    for kind in list_options():
        for name, option in kind.options().items():
            ends = option.opt.bounds or ()
            wrong = [str(ends[0] - 1), str(ends[1] + 1), "nan"] if ends else []
            if limits := LIMITS.search(option.takes):
                most, unit = limits.groups()
                beyond = ("0", "nan", "\uff11", f"0{unit}", f"9{most}{unit}", f"\uff11{unit}")
                wrong += ["no such", *beyond]
            wrong += ["no such"] * bool(option.words) + [""] * (not option.opt.empty)
            for text in wrong if not option.is_switch else ():
                said = refusal(kind.of, {name: [text] if option.repeated else text})
                assert said.startswith(f"{option.flag}: ") and " is not allowed; it takes " in said
            for word in option.words:
                assert "; did you mean '" in refusal(kind.of, {name: f"{word}x"})


@pytest.mark.parametrize("command", NAMES)
def test_no_axis_takes_any_word(command: str) -> None:
    for option in axis_options(command).values():
        if not option.is_switch:
            said = refusal(option.read, "no such", option.flag)
            assert said.startswith(f"{option.flag}: 'no such' is not allowed; it takes")
