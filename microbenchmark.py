"""The two published rows of the microbenchmark, printed in the published form."""

import sys

from serve_bench.cli.program import main

if __name__ == "__main__":
    main(["micro", "--clients", "1,8", "--format", "classic", *sys.argv[1:]])
