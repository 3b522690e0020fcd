"""Interchangeable rankers, one method a file."""
