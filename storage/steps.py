"""Pieces of work that stop wherever other work may come between: who runs one decides when it goes on."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]
"""A piece of work that stops wherever other work may come between; its value comes with its end."""


def finish(steps: Steps[T]) -> T:
    """Run all steps at once and return their value, where nobody waits."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
