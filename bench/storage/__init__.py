"""Benchmarks of the storage file: how fast the commands are on a large one."""
