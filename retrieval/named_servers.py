"""What the tools of servers gain that a task names, by words and by meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from foretool.retrieval.corpus import Corpus, ToolIdentity
from foretool.retrieval.line import NeedScores
from foretool.retrieval.rankers.servers import NOT_NAMED, TOLD_APART, Mention
from foretool.retrieval.ranking import CLEARLY

if TYPE_CHECKING:
    from foretool.retrieval.model_format import Reading
    from foretool.retrieval.rankers.dense import DenseEnsemble
    from foretool.retrieval.score_sum import ScoreSum


class TextVectors:
    """The vectors of the texts of one query. Each text is given to the encoders once, even if they fail."""

    def __init__(
        self, dense: DenseEnsemble | None, read: Callable[[DenseEnsemble, Sequence[str]], list[Reading]]
    ) -> None:
        """`read` asks the encoders."""
        self._dense = dense
        self._read = read
        self._known: dict[str, Reading] = {}

    def of(self, texts: Sequence[str]) -> list[Reading]:
        """Return the vectors of each text. Call it only where encoders rank."""
        assert self._dense is not None
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        self._known |= zip(new, self._read(self._dense, new) if new else (), strict=True)
        return [self._known[text] for text in texts]


class NamedServers:
    """Finds the servers that a task names, and ranks their tools higher."""

    def __init__(
        self, corpus: Corpus, dense: DenseEnsemble | None, vectors: TextVectors, *, is_told_by_lines: bool
    ) -> None:
        """`is_told_by_lines`: each line that names a server means it."""
        self._corpus = corpus
        self._dense = dense
        self._vectors = vectors
        self._is_told_by_lines = is_told_by_lines
        self.gains: dict[int, float] = {}
        """By slot, what puts a tool whose server the task names before those that do the same."""

    def find(self, line: str) -> Mapping[str, Mention]:
        """Return the servers that a line names and whose tools therefore score higher. {} for lines that are clauses of
        one task: one clause may name a server that the others do not mean."""
        found = self._corpus.server_names.find(line) if self._is_told_by_lines else {}
        return {server: mention for server, mention in found.items() if mention.share}

    def lift(self, summed: ScoreSum, line: NeedScores) -> ScoreSum:
        """Return the sum with the tools of the servers that a line names scored higher. To choose among a server's
        tools the line is read without the server's name, which would favour tools with short texts."""
        lifts: dict[int, float] = {}
        for server, mention in self.find(line.text).items():
            slots = [slot for slot in self._corpus.slots_of.get(server, ()) if summed.live[slot]]
            shifts = self._shifts_without(line, mention.rest, slots, summed) if mention.rest else {}
            for slot in slots:
                score = float(summed.total[slot]) + shifts.get(slot, 0.0)
                lifts[slot] = shifts.get(slot, 0.0) + mention.share * max(score, 0.0)
        return summed.lifted("server", lifts)

    def _shifts_without(self, line: NeedScores, rest: str, slots: Sequence[int], summed: ScoreSum) -> dict[int, float]:
        """Return by how much the tools of one server stand higher or lower by meaning where a line is read without the
        server's name; 0 in the mean."""
        if self._dense is None or not slots:
            return {}
        named, plain = self._vectors.of([line.text, rest])
        if not all(each.any() for each in (*named, *plain)):
            return {}  # an encoder could not be asked
        (apart,) = self._dense.sums([{}], [plain])
        encoders = [head.name for head in self._dense.heads]
        shifts = {
            slot: sum(float(apart.parts[name][slot] - summed.parts[name][slot]) for name in encoders) for slot in slots
        }
        mean = sum(shifts.values()) / len(shifts)
        return {slot: shift - mean for slot, shift in shifts.items()}

    def raise_hits(self, line: NeedScores, hits: dict[int, float]) -> dict[int, float]:
        """Return the scores by words of a line, higher for the tools of the servers that it names; by slot."""
        if not (servers := self.find(line.text)):
            return hits
        gains = {
            slot: mention.share for server, mention in servers.items() for slot in self._corpus.slots_of.get(server, ())
        }
        return {slot: score * (1.0 + gains.get(slot, 0.0)) for slot, score in hits.items()}

    def put_first(
        self, order: list[tuple[int, float]], task: str, named: Mapping[int, float]
    ) -> list[tuple[int, float]]:
        """Return the order with each tool whose server the task names clearly before those of the same name on other
        servers that it does not name. A word that tells a server from others with the same tools is hardly there by
        chance, so all tools of that server gain."""
        servers = self._corpus.server_names.find(task) if task else {}
        if not servers:
            return order
        tools = {slot: self._corpus.identity(slot) for slot, _ in order}
        said = {slot: servers[tool.upstream] for slot, tool in tools.items() if tool.upstream in servers}
        scores = dict(order)
        meant, others = set[str](), set[str]()
        for slot in said:
            twins = {other: score for other, score in order if _is_meant(slot, other, said, tools, named)}
            scores[slot] = max(scores[slot], CLEARLY * max(twins.values(), default=0.0))
            if theirs := {tools[other].upstream for other in twins if tools[slot].is_twin(tools[other])}:
                meant.add(tools[slot].upstream)
                others |= theirs
        for slot in said:
            if tools[slot].upstream in meant - others:
                scores[slot] *= 1.0 + TOLD_APART
        self.gains = {slot: gain for slot, score in order if (gain := scores[slot] - score) > 0.0}
        return sorted(scores.items(), key=lambda each: -each[1])


def _is_meant(
    slot: int, other: int, said: Mapping[int, Mention], tools: Mapping[int, ToolIdentity], named: Mapping[int, float]
) -> bool:
    """Return whether the task means one tool in place of another, because it names the server of that one alone. A
    word that the tool has itself names no other server: "list the files" need not mean the server `files`."""
    ours, its = tools[slot], tools[other]
    if ours.name != its.name or its.upstream in ("", ours.upstream):
        return False
    if named.get(slot) != named.get(other) or not (slot in named or ours.is_twin(its)):
        return False
    one, two = said[slot], said.get(other, NOT_NAMED)
    if two.names - one.names - ours.words or two.marks - one.marks - one.names:
        return False
    return bool(one.names - two.names) or (one.names == two.names and bool(one.marks - two.marks))
