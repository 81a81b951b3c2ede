"""The two published rows of the microbenchmark, printed in the published form."""

import sys

from serve_bench.cli.program import main

#: Flags of the published form, by their spellings; one that is given stands in its place.
USUAL = {("--clients",): "1,8", ("--format", "-f"): "classic"}

if __name__ == "__main__":
    given = sys.argv[1:]
    words = ["micro"]
    for names, value in USUAL.items():
        if not any(word.startswith(names) for word in given):
            words += [names[0], value]
    main([*words, *given])
