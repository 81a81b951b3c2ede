"""The no-op host and its latency: `python noop_latency.py --blocking --num-replicas 8 ...`."""

import sys

from serve_bench.cli.program import main

if __name__ == "__main__":
    main(["noop", *sys.argv[1:]])
