"""The commands that people type, one a file; `serve` is the odd one, see `cli.py`."""
