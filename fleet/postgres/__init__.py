"""The engine of PostgreSQL and what speaks its protocol; `storage/opening.py` alone imports it."""
