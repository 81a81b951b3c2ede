"""serve-bench run: the user's own app on a real Ray, its options swept and proven."""

import shutil
from pathlib import Path

import pytest

from serve_bench.core.secrets import hash_value
from serve_bench.store import read
from tests.integration.conftest import measure, run_checked

pytestmark = [pytest.mark.ray]

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "own_app"


def test_an_app_is_swept_and_each_option_proven(tmp_path: Path) -> None:
    """The example's suite file, from a folder of the user's, then the same run gone on with."""
    shutil.copytree(EXAMPLE, tmp_path / "mine")
    result = measure("run mine/shop.toml --quick", tmp_path)
    assert len(result.trials) == 4 and not result.failures
    assert all(trial.counts.completed > 0 and not trial.counts.failed for trial in result.trials)
    (launch,) = result.launches
    assert launch.proof["http_options"]["request_timeout_s"] == 10
    assert launch.variant.env == {"OMP_NUM_THREADS": "1"}
    for deploy in result.deploys:
        replicas = deploy.proof["replicas"]
        rankers = [replica for replica in replicas if replica["deployment"] == "Ranker"]
        assert len(rankers) == deploy.cell["Ranker.num_replicas"]
        asked = deploy.cell["Ranker.max_ongoing_requests"]
        assert {ranker["max_ongoing_requests"] for ranker in rankers} == {asked}
        assert {ranker["ray_actor_options.num_cpus"] for ranker in rankers} == {0.5}
        assert [replica["deployment"] for replica in replicas].count("Shop") == 1
    assert [deploy.in_place for deploy in result.deploys][1:] == [True] * 3
    unnamed = run_checked("run --resume run", tmp_path, 2)  # a record alone runs no app
    assert "the app mine/shop.py:app" in unnamed.stderr
    again = measure("run mine/shop.toml --quick --resume run", tmp_path)
    assert len(again.trials) == 4  # nothing was left to be measured


HELPER = """
from ray import serve

@serve.deployment
class Helper:
    def __init__(self, word):
        self.word = word

    def say(self, text):
        return f"{self.word} {text}"

def build(args):
    return Helper.bind(args["word"])
"""
SHOP = """
from ray import serve
from starlette.responses import PlainTextResponse

@serve.deployment(user_config={"broken": 0})
class Shop:
    def reconfigure(self, config):
        self.broken = config["broken"]

    async def __call__(self, request):
        if self.broken:
            raise LookupError("no such shelf")
        helper = serve.get_app_handle("helper")
        model = request.headers["serve_multiplexed_model_id"]
        return PlainTextResponse(await helper.say.remote(f"{request.url} {model}"))

app = Shop.bind()
"""
CONFIG = """
http_options: {port: 1, request_timeout_s: 20}
applications:
  - name: helper
    route_prefix: /helper
    import_path: helper:build
    args: {word: hello}
    deployments: [{name: Helper, ray_actor_options: {num_cpus: 0.5}}]
  - {name: shop, route_prefix: /shop, import_path: "shop:app"}
"""


@pytest.mark.long
def test_a_config_file_is_deployed_whole_and_a_500_told_with_its_traceback(tmp_path: Path) -> None:
    """Two applications, one of which asks the other; then, in place, one that fails."""
    for name, text in (
        ("helper.py", HELPER),
        ("shop.py", SHOP),
        ("config.yaml", CONFIG),
        ("paths", "/shop/a\n/shop/b?c=1\n"),
        ("headers", "".join(f'{{"serve_multiplexed_model_id": "m{n}"}}\n' for n in range(3))),
    ):
        (tmp_path / name).write_text(text)
    words = "run config.yaml --app-name shop --paths paths --headers headers --quick --out out"
    arguments = [*words.split(), "--clients", "raw:2", "--option", "Shop.user_config.broken=0,1"]
    done = run_checked(arguments, tmp_path, 1)
    assert "the load goes to shop, with helper deployed beside it" in done.stderr
    assert "config.yaml: has no effect here: http_options.port" in done.stderr
    result = read(tmp_path / "out")
    (trial,) = result.trials  # of the cell that is not broken
    assert trial.counts.completed > 0 and not trial.counts.failed
    assert result.launches[0].proof["http_options"] == {"request_timeout_s": 20}
    assert result.run.suite["app"]["asked"]["paths"] == ["/shop/a", f"/shop/b?c={hash_value('1')}"]
    (failure,) = result.failures
    assert failure.message.endswith("Error for 5 s: LookupError: no such shelf")
    assert any("shop.py" in line and "in __call__" in line for line in failure.detail)
    assert not any("site-packages" in line for line in failure.detail)
    assert 'raise LookupError("no such shelf")' in done.stderr
