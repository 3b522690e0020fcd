"""Starts a proxy whose store has a model of what is called next: `with_model.py CONFIG TOOLS -- COMMAND`.

TOOLS are the names of tools, joined by commas; those that no upstream has only make the model larger. A script of
peerbench starts it in place of `foretool serve`, from a folder of its own.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.growth.prediction import make_model
from foretool.server.config import loader
from foretool.storage.opening import open_store

TASKS = 1_000


def main(argv: list[str]) -> None:
    """Put the model into the store, and become the proxy."""
    config, tools, _, *command = argv
    with open_store(loader.load(Path(config)).storage) as store:
        store.artifacts.add("dtdr", make_model(tools.split(","), TASKS), {}, promote=True)
        store.artifacts.bump_version()
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
