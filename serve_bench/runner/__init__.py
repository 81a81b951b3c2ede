"""Measures the rows of a plan on launches of a variant, or on a URL, and records them."""
