"""A process that learns and stops at one point until it is killed: `python learning_child.py CONFIG POINT`.

It prints each point of the run. Point `lead` comes before anything is read; others are a kind and what is done.
"""

from __future__ import annotations

import sys
from pathlib import Path

from learned_fakes import CountedMethod

from foretool.learning.run import Busy, learn
from foretool.retrieval import methods
from foretool.retrieval.methods import TrainedMethod
from foretool.server import offline
from foretool.server.config import loader as configs
from foretool.server.learning_schedule import LEARNING
from foretool.storage.opening import open_store
from foretool.storage.sqlite.leads import FileLead as Lead

METHOD = CountedMethod()
KINDS = ("dtdr", "masstool")
METHODS = {kind: TrainedMethod("learned_fakes:Counted", "learning_child:METHOD", "history") for kind in KINDS}


def stop_at(point: str, here: str) -> None:
    print(here, flush=True)
    if here == point:
        sys.stdin.read()


def main() -> None:
    path, point = sys.argv[1:3]
    vars(methods)["METHODS"] = METHODS
    config = configs.load(Path(path))
    if point == "lead":
        with Lead(config.storage, LEARNING) as lead:
            assert lead.take()
            stop_at(point, "lead")
    with open_store(config.storage) as store, offline.open_offline(config) as app:
        try:
            run = learn(config, app.catalog, store, lambda kind, what, _: stop_at(point, f"{kind}: {what}"), now=2e6)
        except Busy:
            print("busy", flush=True)
        else:
            print("done", *(f"{each.kind}={each.outcome}" for each in run.results), flush=True)


if __name__ == "__main__":
    main()
