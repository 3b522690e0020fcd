"""Coverage-guided fuzzing of the code that reads bytes from outside: `python -m bench.fuzz TARGET`."""
