"""Benchmarks that compare in one run: ratios, never absolute times."""
