"""The register of trained methods: which class serves each, what trains it, and what its part of a score is called.

Classes are named as text and imported when they are first asked for, because serving imports no training.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from msgspec import Struct


class TrainedMethod(Struct, frozen=True):
    """Where the two halves of a method are, each as `module:name`."""

    served: str
    """The `LearnedModel` that reads the method's models."""
    training: str
    """The `training.Method` that makes them."""
    part: str
    """The name of its part of a score."""


METHODS: Final[Mapping[str, TrainedMethod]] = {
    "dtdr": TrainedMethod("foretool.learning.rankers.dtdr:Dtdr", "foretool.learning.training.dtdr:METHOD", "history"),
    "tgr": TrainedMethod("foretool.learning.rankers.tgr:Tgr", "foretool.learning.training.tgr:METHOD", "graph"),
    "masstool": TrainedMethod(
        "foretool.learning.rankers.masstool:MassTool", "foretool.learning.training.masstool:METHOD", "tasks"
    ),
    "ports": TrainedMethod(
        "foretool.learning.rankers.ports:Ports", "foretool.learning.training.ports:METHOD", "trained"
    ),
}
"""By the method's name, as the CLI, the store and the docs spell it."""


def import_object(path: str) -> Any:
    """Import what `module:name` names. Raises `ImportError` where something is not installed."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
