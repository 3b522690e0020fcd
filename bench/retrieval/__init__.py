"""Benchmarks of search: how good and how fast rankings are, and how well the gate is calibrated."""
