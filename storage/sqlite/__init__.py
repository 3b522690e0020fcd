"""The engine of one SQLite file; `storage/opening.py` alone imports it."""
