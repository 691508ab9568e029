"""Measurements of the project itself: `python -m benchmarks.NAME`; every figure in the docs names its command."""
