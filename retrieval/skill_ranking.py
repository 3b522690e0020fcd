"""Ranks skills for a task: by the meaning of their names and descriptions, and a little by words.

Skills are few and long-winded beside tools: a description says what the skill does and when to use it. So the cosine
decides, and the share of the task's words that a skill has settles near ties (`python -m bench.retrieval.skills`).
Without vectors that share alone decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from foretool.retrieval.document import Document
from foretool.retrieval.rankers.bm25 import Lexical, weigh_terms
from foretool.storage.records import ToolId

if TYPE_CHECKING:
    from foretool.retrieval.model_format import Floats

_MOST: Final = 3
"""So many skills are shown at most."""
_WORDS: Final = 0.1
"""What all words of a task count beside the cosine."""
_APPLIES: Final = 0.33
"""A skill fits from this score on. Unrelated texts have cosines of .1 to .25 with the encoder that ships."""
_BEHIND: Final = 0.1
"""A skill that is this much behind the best one is not shown."""
_APPLIES_BY_WORDS: Final = 0.5
"""Without vectors: the least share of a task's words, weighed by how much each tells."""
_BACKGROUND: Final = 20
"""The fewest skills that the weight of a word assumes: among two, every word would tell little."""


def skill_text(name: str, description: str) -> str:
    """Return what an encoder reads of a skill."""
    return f"{name.replace('-', ' ')}: {' '.join(description.split())}"


class SkillRanking:
    """Ranks one set of skills."""

    def __init__(self, skills: Sequence[tuple[str, str]]) -> None:
        """`skills`: name and description of each."""
        self.texts = [skill_text(name, description) for name, description in skills]
        self._lexical = Lexical(wide=0)
        for place, (name, description) in enumerate(skills):
            self._lexical.add(Document(ToolId(str(place)), "", name, "", description))

    def find(
        self, tasks: Sequence[str], queries: Sequence[Floats] = (), vectors: Mapping[str, Floats] | None = None
    ) -> list[int]:
        """Return the places of the skills that fit one of the texts of a task, best first. `queries`: the vectors of
        these texts; `vectors`: those of skills, by text."""
        known = vectors or {}
        best: dict[int, tuple[bool, float]] = {}
        for at, task in enumerate(tasks):
            words = weigh_terms(task)
            for place, text in enumerate(self.texts):
                share = self._lexical.coverage(words, place, _BACKGROUND)
                if at < len(queries) and text in known:
                    score, least = float(queries[at] @ known[text]) + _WORDS * share, _APPLIES
                else:
                    score, least = share, _APPLIES_BY_WORDS
                best[place] = max((score >= least, score), best.get(place, (False, 0.0)))
        fitting = sorted((-score, place) for place, (fits, score) in best.items() if fits)
        return [place for score, place in fitting[:_MOST] if -score >= -fitting[0][0] - _BEHIND]
