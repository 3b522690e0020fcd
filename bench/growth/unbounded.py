"""foretool whose runs of learning have no bounds: `python -P bench/growth/unbounded.py learn ...`.

More and larger networks and heads, every fold, all scores, and no smaller models for a replay. Which tasks of a log are
read stays as it is: up to 2,400 of them are all read.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from foretool.learning.training import Material, Method, Progress, dtdr, masstool, replay
from foretool.server import cli

RECIPE: Final = dtdr.Recipe(networks=5, trial_networks=5, steps=2_600, steps_with_vectors=2_600)
SCORES: Final = 1_000_000
HEADS: Final = 4
ALL: Final = 1_000_000_000


def whole(method: Method) -> Method:
    """Return a method that trains each model as one that serves, and fits the weights of its parts each time."""

    def train(material: Material, progress: Progress) -> bytes:
        return method.train(replace(material, earlier=b"", is_trial=False), progress)

    return Method(method.minimum, train)


def loosen() -> None:
    """Take the bounds away, for the rest of this process."""
    dtdr.MOST_SCORES = SCORES
    dtdr.MANY = ALL
    dtdr.METHOD = whole(Method(dtdr.MINIMUM, dtdr.Trainer(RECIPE).train))
    masstool.ALONE = HEADS  # type: ignore[misc]
    masstool.METHOD = whole(masstool.METHOD)  # type: ignore[misc]
    replay.LONGEST = replay.MOST_TOOLS = ALL  # type: ignore[misc]


if __name__ == "__main__":
    loosen()
    cli.main()
