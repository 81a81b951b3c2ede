"""A command line as a suite file: what the file measures is what the command line would."""

from pathlib import Path

from tests.cases import Call, Patch, Refuses, cases
from tests.places import EXAMPLES

SHOP = EXAMPLES / "own_app" / "shop.py:app"


@cases(
    "command, flags",
    ("micro", "--quick --max-batch-size 1,4 --variant default,optimized --launches 2"),
    ("micro", "--protocol stream --stream-events 3,30 --clients raw:2"),
    ("micro", "--body-type str --windows 4 --env OMP_NUM_THREADS=2 --slo p99=50ms"),
    ("sweep", "--num-replicas 2 --users 1,2,4 --duration 5"),
    ("sweep", f"{SHOP} --route /best --users 1,2 --quick"),
    ("press", "--app noop --clients 1,10 --samples 3 --timeout 900ms --log-level DEBUG,ERROR"),
)
def test_a_command_line_is_a_suite(
    command: str, flags: str, tmp_path: Path, monkeypatch: Patch, call: Call
) -> None:
    monkeypatch.chdir(tmp_path)
    text, _ = call(command, *flags.split(), "--dry-run", "--format", "toml")
    flag = "" if command == "sweep" else "--suite "
    assert text.startswith(f"# serve-bench {command} {flag}FILE, in the folder of this command\n")
    Path("suite.toml").write_text(text)
    of_flags, _ = call(command, *flags.split(), "--dry-run")
    of_file, _ = call(command, *flag.split(), "./suite.toml", "--dry-run")
    assert of_file == of_flags


def test_it_goes_with_a_dry_run_of_launches_alone(refuses: Refuses) -> None:
    refuses("micro --format toml", "--format: toml goes with --dry-run")
    for command in ("sweep", "recsys", "press"):
        services = f"{command} --url http://127.0.0.1:9 --dry-run --format toml"
        refuses(services, "--format: toml: no suite file says what this command line does")
