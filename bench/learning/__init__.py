"""Benchmarks of learning: what use changes over time, and how the shipped encoder is trained."""
