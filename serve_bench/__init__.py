"""serve-bench: measures Ray Serve, and gives the evidence for each number."""

__version__ = "0.1.0"
