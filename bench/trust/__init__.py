"""Benchmarks of what the proxy holds when somebody attacks it."""
