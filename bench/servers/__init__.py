"""Servers that benchmarks start: stand-in upstreams, foretool that counts itself, and an aggregate to compare with."""
