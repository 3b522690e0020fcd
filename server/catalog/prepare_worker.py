"""Prepares the model of a trained encoder in a process of its own: doing it here would leave 90 MB in this one.

    python -m foretool.server.catalog.prepare_worker NAME CACHE

reads an adapter from stdin and leaves the prepared model in CACHE.
"""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import run

from foretool.retrieval.encoders.adapted import prepare_model, prepared_folder
from foretool.retrieval.encoders.weights import BY_NAME, Weights


def prepare_apart(weights: Weights, model: bytes, cache: Path) -> Path:
    """Do what `prepare_model` does, in another process where the weights are known by name."""
    if not prepared_folder(weights, model, cache).is_dir() and weights in BY_NAME:
        command = (sys.executable, "-m", __name__, weights.name, str(cache))
        # If the other process fails, this one tries and says why.
        run(command, input=model, capture_output=True, check=False)
    return prepare_model(weights, model, cache)


if __name__ == "__main__":
    (named,) = (each for each in BY_NAME if each.name == sys.argv[1])
    prepare_model(named, sys.stdin.buffer.read(), Path(sys.argv[2]))
