"""Ranks tools for a query: no I/O beyond reading weights, no network, no process, no clock."""
