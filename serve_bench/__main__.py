"""`python -m serve_bench` is `serve-bench`."""

from serve_bench.cli import main

if __name__ == "__main__":
    main()
