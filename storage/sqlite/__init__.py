"""The store in one SQLite file. All SQL of the product is in this folder; `storage/opening.py` alone imports it."""
