"""Coverage-guided fuzzing of what reads bytes from outside: `python -m bench.fuzz TARGET`, see `__main__.py`."""
