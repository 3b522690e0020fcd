"""Benchmarks, run by hand: what they need is given as an argument."""
