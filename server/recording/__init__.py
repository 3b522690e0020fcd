"""Writes what happened into the store, before the answer leaves."""
