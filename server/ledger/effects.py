"""What recorded tasks take now and after a change of the config, as commands and the page show it.

The pack `desk` measures it (`desk/replay/effect.py`); without that pack no change has an effect that is known.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Verdict = Literal["better", "worse", "mixed", "same"]


class Figures(Struct, frozen=True):
    """Means per task: misses, discoveries and tokens."""

    misses: float
    hidden: float
    """Calls of tools that the list lacked."""
    discoveries: float
    tokens: float
    """Of the next list, answers and hints, counted at each turn in which they stood before the model."""
    listed: float
    """Of the list that such a client gets next."""
    unreachable: float
    """Calls of tools that the config does not let through."""


class Difference(Struct, frozen=True):
    """A difference of means between the ends of its 95 % interval; below 0 where the change takes less."""

    low: float
    mean: float
    high: float

    @property
    def is_lower(self) -> bool:
        return self.high < 0.0

    @property
    def is_higher(self) -> bool:
        return self.low > 0.0

    def say(self, noun: str, digits: int) -> str:
        """Write the difference for people who do not read intervals: `0.12 misses fewer (unsure)`."""
        size = f"{abs(self.mean):,.{digits}f}"
        if not float(size.replace(",", "")):
            return f"as many {noun}"
        doubt = "" if self.is_lower or self.is_higher else " (unsure)"
        return f"{size} {noun} {'fewer' if self.mean < 0 else 'more'}{doubt}"


class ToolShift(Struct, frozen=True):
    """A tool that is missed more or less often."""

    tool: str
    now: int
    then: int


class Effect(Struct, frozen=True):
    """What the same tasks take now, and what they would take after a change."""

    tasks: int
    sessions: int
    calls: int
    guessed: int
    """Searches whose words are not on record; the tool's own words stand for them."""
    now: Figures
    then: Figures
    misses: Difference
    discoveries: Difference
    tokens: Difference
    shifts: tuple[ToolShift, ...]
    """The tools whose misses change most."""
    took_s: float = 0.0
    of: int = 0
    """How many tasks could have been played: more than `tasks` where time was short."""

    @property
    def verdict(self) -> Verdict:
        """Whether anything is lower or higher outside the error."""
        parts = (self.misses, self.discoveries, self.tokens)
        falls, rises = any(each.is_lower for each in parts), any(each.is_higher for each in parts)
        rises = rises or self.then.unreachable > self.now.unreachable
        return "mixed" if falls and rises else "better" if falls else "worse" if rises else "same"

    @property
    def is_worse(self) -> bool:
        """Whether misses or discovery turns rise outside the error, or calls are not let through any more."""
        rises = self.misses.is_higher or self.discoveries.is_higher
        return rises or self.then.unreachable > self.now.unreachable
