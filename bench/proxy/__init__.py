"""Benchmarks of the running proxy: start, calls, load, memory, hostile input, real clients and other proxies."""
