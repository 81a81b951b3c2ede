from serve_bench.core.slo import Objective, parse_slo
from tests.cases import cases, refusal

DEFAULT = Objective("errors", "errors", 0.01, given=False)
TTFT = Objective("ttft_p95", "percentile", 200e6, metric="ttft", share=0.95)
GOODPUT = Objective("goodput", "goodput", 0.95, within_ns=50e6)
TIMED_OUT = Objective("errors.timeout", "errors", 0.001, error="timeout")


@cases(
    "text, objective, shown",
    ("p99=50ms", Objective("p99", "percentile", 50e6, share=0.99), "p99 <= 50 ms"),
    ("p99.9=1.5s", Objective("p99.9", "percentile", 1.5e9, share=0.999), "p99.9 <= 1.5 s"),
    (" p50 = 200us ", Objective("p50", "percentile", 200e3, share=0.5), "p50 <= 200 us"),
    ("mean=.5ms", Objective("mean", "mean", 5e5), "mean <= 500 us"),
    ("ttft_p95=200ms", TTFT, "ttft_p95 <= 200 ms"),
    ("goodput=95%@50ms", GOODPUT, "goodput >= 95 % within 50 ms"),
    ("errors.timeout=0.001", TIMED_OUT, "errors.timeout <= 0.1 %"),
)
def test_objectives_are_read_and_shown(text: str, objective: Objective, shown: str) -> None:
    slo = parse_slo(text)
    assert slo.objectives == (objective, DEFAULT)  # nothing else bounds all errors
    assert slo.text == f"{shown}, errors <= 1 % (default)"
    assert parse_slo(slo.source) == slo and "errors=1%" not in slo.source
    given = parse_slo("errors=0,p99=50ms")  # which is no default
    assert [objective.name for objective in given.objectives] == ["errors", "p99"]
    assert (given.text, given.source) == ("errors <= 0 %, p99 <= 50 ms", "errors=0%,p99=50ms")


@cases("text, fewest", ("p50=1s", 2), ("p99=1s", 100), ("p99.9=1s", 1000), ("mean=1s", 1))
def test_a_percentile_needs_a_request_beyond_it(text: str, fewest: int) -> None:
    assert parse_slo(text).objectives[0].fewest == fewest


@cases(
    "text, message",
    ("", "'' is not allowed; it takes NAME=LIMIT, as in p99=50ms,errors=0.1%"),
    ("p99=50ms,", "'' is not allowed; it takes NAME=LIMIT"),
    ("p99=50ms,p99.00=1s", "p99 is given twice"),
    ("p99=0ms", "above 0 and up to 3600s"),
    ("p99=٥ms", "it takes a time with its unit"),
    ("p99.99=1s", "'p99.99' is not allowed; a percentile is p1 to p99.9"),
    ("x_p99=1s", "'x_p99': the prefix must be ttft_, itl_ or none"),
    ("errors=1", "errors=1 is not allowed; it takes a share from 0 and below 100%"),
    ("errors.slow=1%", "'errors.slow': the class of errors must be one of connect, reset"),
    ("goodput=95%", "'goodput=95%' is not allowed; it takes goodput=95%@50ms"),
    ("goodput=0@50ms", "it takes a share above 0"),
    ("rps=100", "'rps' is not allowed; it takes p50 to p99.9, mean, errors"),
)
def test_what_is_wrong_is_one_line_that_names_the_flag(text: str, message: str) -> None:
    said = refusal(parse_slo, text)
    assert message in said and said.startswith("--slo: ")
