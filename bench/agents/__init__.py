"""Measures what coding agents do with foretool's lists, offline, with a stub of their model's API."""
