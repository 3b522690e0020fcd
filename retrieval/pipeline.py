"""The recipe: which rankers, in which order, over this catalog.

Words decide (`rankers.lexical`), and meaning beside them where an encoder is attached (`rankers.dense`), each line of a
task for itself; what was learned from tasks before is one part more (`rankers.experience`); usage settles near ties
(`rankers.usage`); a tool that was named stands before all others (`rankers.names`). A tool without a matching word,
name or use, or with a meaning further off than that of the average tool, is not ranked at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from heapq import nlargest
from math import exp, log
from typing import TYPE_CHECKING

from msgspec.structs import replace

from foretool.retrieval.document import document, embedded_text
from foretool.retrieval.rankers.bm25 import SAID, Lexical, idf, weighted
from foretool.retrieval.rankers.names import EXACT, Names
from foretool.retrieval.rankers.usage import usage_shares
from foretool.retrieval.ranking import MAX_LINES, Evidence, Query, Ranked, Ranking
from foretool.retrieval.score_fusion import fuse_lines
from foretool.retrieval.words import KINDRED_WORDS, spelled
from foretool.storage.records import Tool, ToolId, Usage

if TYPE_CHECKING:
    from foretool.retrieval.blend import Blend, Floats
    from foretool.retrieval.graph import Raised
    from foretool.retrieval.model_format import Reading
    from foretool.retrieval.rankers.dense import Meaning
    from foretool.retrieval.rankers.learned import Experience

NAMED = 1000.0
"""More than any sum of words: a named tool comes first."""
LEAST_WORDS = 0.01
"""What usage is a share of where a tool was named and shares no word."""
MAX_NEED_WORDS = 40
"""A longer line is a paragraph, and the lines are one story."""
MAX_REASON_TERMS = 8
MAX_REASON_WORDS = 5
WORDS_ALONE = 1.0
"""What a standard deviation of the words counts beside what was learned, where there is no encoder."""
TELLING = 0.5
"""From here on a learned part is a reason."""
LIFTING = 50
"""So many of the best lift what they need."""
MAX_READINGS = 256
"""Texts whose vectors are kept."""
ENTROPY_DEPTH = 50
_FEW_GAPS = 256


class Corpus:
    """Every tool that can be ranked, each in a slot that stays its own while the tool is unchanged."""

    def __init__(self, tools: Sequence[Tool] = (), server_texts: Mapping[str, str] | None = None) -> None:
        self.lexical = Lexical()
        self.names = Names()
        self.ids: list[ToolId | None] = []
        """By slot; None where a tool was dropped."""
        self.slot_of: dict[ToolId, int] = {}
        self.slots_of: dict[str, tuple[int, ...]] = {}
        """Slots by upstream."""
        self.digests: list[bytes] = []
        """By slot, the hash of the text that encoders read; empty where a tool was dropped."""
        self.version = 0
        """Goes up with every change."""
        self._known: dict[ToolId, tuple[str, str, str | bytes, str]] = {}  # what a slot was read from
        by_upstream: dict[str, list[Tool]] = {}
        for tool in tools:
            by_upstream.setdefault(tool.upstream, []).append(tool)
        for upstream, theirs in by_upstream.items():
            self.replace(upstream, theirs, (server_texts or {}).get(upstream, ""))

    def __len__(self) -> int:
        return len(self.slot_of)

    def __contains__(self, tool: object) -> bool:
        return tool in self.slot_of

    def replace(self, upstream: str, tools: Sequence[Tool], server_text: str = "") -> None:
        """Make `tools` all that this upstream has; unchanged tools are not read again."""
        for _ in self.replacing(upstream, tools, server_text):
            pass

    def replacing(self, upstream: str, tools: Sequence[Tool], server_text: str = "") -> Iterator[None]:
        """As `replace`, with a pause after each tool that was read. The corpus may be searched in it, not changed; go
        through to the end."""
        wanted = {tool.id: (upstream, tool.name, tool.schema_hash or tool.definition, server_text) for tool in tools}
        before = [each for slot in self.slots_of.get(upstream, ()) if (each := self.ids[slot]) is not None]
        for known in dict.fromkeys([*before, *wanted]):
            if known in self._known and self._known[known] != wanted.get(known):
                self._drop(known)
        for tool in tools:
            if tool.id not in self.slot_of:
                self._add(tool, server_text)
                self._known[tool.id] = wanted[tool.id]
                yield
        if wanted:
            self.slots_of[upstream] = tuple(self.slot_of[tool] for tool in wanted)
        else:
            self.slots_of.pop(upstream, None)
        if len(self.ids) - len(self) > max(len(self), _FEW_GAPS):
            self._compact()

    def remove(self, upstream: str) -> None:
        """Forget every tool of this upstream."""
        self.replace(upstream, ())

    def _add(self, tool: Tool, server_text: str) -> None:
        read = document(tool, server_text)
        slot = self.lexical.add(read)
        self.names.add(slot, tool.upstream, tool.name, tool.id)
        self.ids.append(tool.id)
        self.slot_of[tool.id] = slot
        self.digests.append(digest(embedded_text(read)))
        self.version += 1

    def _drop(self, tool: ToolId) -> None:
        slot = self.slot_of.pop(tool)
        upstream, name, _, _ = self._known.pop(tool)
        self.lexical.drop(slot)
        self.names.drop(slot, upstream, name, tool)
        self.ids[slot] = None
        self.digests[slot] = b""
        self.version += 1
        self.slots_of[upstream] = tuple(each for each in self.slots_of.get(upstream, ()) if each != slot)

    def _compact(self) -> None:
        """Close the gaps that dropped tools left; every slot may get another number."""
        self.lexical.compact()
        self.version += 1
        self.digests = [each for each in self.digests if each]
        self.ids = [tool for tool in self.ids if tool is not None]
        self.slot_of = {tool: slot for slot, tool in enumerate(self.ids) if tool is not None}
        self.names = Names()
        slots_of: dict[str, list[int]] = {}
        for tool, slot in self.slot_of.items():
            upstream, name, _, _ = self._known[tool]
            self.names.add(slot, upstream, name, tool)
            slots_of.setdefault(upstream, []).append(slot)
        self.slots_of = {upstream: tuple(slots) for upstream, slots in slots_of.items()}


class Pipeline:
    """Ranks a corpus; reads it at each query, so a corpus may change between two."""

    def __init__(self, corpus: Corpus, meaning: Meaning | None = None, experience: Experience | None = None) -> None:
        self.corpus = corpus
        self.meaning = meaning
        """The encoders; None where there are none, or none yet."""
        self.experience = experience
        """What was learned; None where nothing was, or nobody has asked yet."""
        self._readings: dict[str, Reading] = {}
        """Of the texts that were looked for last, for the models."""
        self._reader: object = None
        """Whose readings they are."""
        self.is_filling = False
        """Many tools are still to come: words and names rank those that are there. Encoders and models would have to
        follow each of them."""

    def rank(self, query: Query, usage: Mapping[ToolId, Usage] | None = None, limit: int = 50) -> Ranking:
        """The best `limit` tools for a query; tools asked for by name first; empty when nothing fits."""
        meaning = self._meaning()
        return _Request(self, query, usage or {}, meaning, self._experience(meaning)).ranking(limit)

    def parts(self, query: Query, usage: Mapping[ToolId, Usage] | None = None) -> dict[str, Floats]:
        """What each ranker adds to the score of every slot, before the factors of a refit; (slots,) each. {} where
        words alone rank."""
        meaning = self._meaning()
        request = _Request(self, query, usage or {}, meaning, self._experience(meaning))
        return request.blend.parts if request.blend is not None else {}

    def after(
        self, history: Sequence[ToolId], lines: Sequence[str] = (), least: float = 0.01
    ) -> tuple[dict[ToolId, float], float]:
        """Which tools are called next with a probability of at least `least`, the likeliest first, and the probability
        that the task is done; ({}, 0) where nothing was learned.

        Cheap enough for the path of a call: the words of a task count only if they were looked for before.
        """
        experience = self._experience(self._meaning())
        reading = self._readings.get("\n".join(needs(lines)))
        found = experience.after(history, reading, lines) if experience is not None else None
        if found is None:
            return {}, 0.0
        chances, end = found
        likely = sorted((chances >= least).nonzero()[0].tolist(), key=lambda slot: -chances[slot])
        ids = self.corpus.ids
        return {tool: float(chances[slot]) for slot in likely if (tool := ids[slot]) is not None}, end

    def readings(self, texts: Sequence[str], meaning: Meaning) -> list[Reading]:
        """The vectors of each text, by encoder; kept for a while, unless an encoder has failed: it may do next time."""
        if self._reader is not meaning:
            self._readings.clear()
            self._reader = meaning
        new = [text for text in dict.fromkeys(texts) if text not in self._readings]
        read = dict(zip(new, meaning.readings(new), strict=True)) if new else {}
        found = [read.get(text) or self._readings[text] for text in texts]
        # Zeros stand for a text that an encoder could not be asked (`encoders.ahead`).
        self._readings |= {text: reading for text, reading in read.items() if all(each.any() for each in reading)}
        while len(self._readings) > MAX_READINGS:
            del self._readings[next(iter(self._readings))]
        return found

    def _experience(self, meaning: Meaning | None) -> Experience | None:
        """What was learned, brought up to the tools as they are now."""
        experience = self.experience if not self.is_filling else None
        if experience is not None and not experience.follows(stamp := (self.corpus.version, id(meaning))):
            vectors = meaning.heads[0].vectors() if meaning is not None else None
            experience.align(self.corpus.ids, stamp, vectors, meaning.names if meaning is not None else "")
        return experience

    def _meaning(self) -> Meaning | None:
        """The encoders, if they know nearly all tools as they are now."""
        meaning = self.meaning if not self.is_filling else None
        if meaning is not None and meaning.version != self.corpus.version:
            meaning.align(self.corpus.digests, self.corpus.version)
        return meaning if meaning is not None and meaning.is_ready else None


class _Line:
    """One need of a task: its terms and what they score."""

    def __init__(self, corpus: Corpus, text: str) -> None:
        self.text = text
        self.wanted = weighted(text)
        self.hits = corpus.lexical.search(self.wanted)
        self.named = corpus.names.in_line(text)

    @cached_property
    def best(self) -> list[float]:
        """The highest scores, best first."""
        return nlargest(ENTROPY_DEPTH, self.hits.values())

    def evidence(self, lexical: Lexical) -> Evidence:
        if not self.best:
            return Evidence(named=bool(self.named))
        return Evidence(
            named=bool(self.named),
            strength=self.best[0] / idf(lexical.live, 1),
            entropy=_entropy(self.best),
            coverage=self._coverage(lexical),
        )

    def _coverage(self, lexical: Lexical) -> float:
        slot = next(slot for slot, score in self.hits.items() if score == self.best[0])
        mass = met = 0.0
        for term, weight in self.wanted.items():
            if weight >= SAID:
                impacts = lexical.impacts(term)
                worth = weight * (impacts.idf if impacts else idf(lexical.live, 0))
                mass += worth
                met += worth if impacts and impacts.of(slot) else 0.0
        return met / mass if mass else 0.0


class _Request:
    """One query against one corpus: the parts of every score, before they are cut to a ranking."""

    def __init__(
        self,
        pipeline: Pipeline,
        query: Query,
        usage: Mapping[ToolId, Usage],
        meaning: Meaning | None,
        experience: Experience | None,
    ) -> None:
        corpus = pipeline.corpus
        self.pipeline = pipeline
        self.corpus = corpus
        self.query = query
        self.usage = usage
        self.meaning = meaning
        self.experience = experience
        self.lines = [_Line(corpus, text) for text in needs(query.lines)]
        self.lifted: dict[ToolId, Raised] = {}
        """Tools that stand higher because a better one needs them."""
        self.needed: list[float | None] = []
        """By line, how likely it needs a tool at all; None where nobody knows."""
        self.blends = self._blends()
        self.blend = self._raised(self.blends[-1]) if self.blends else None
        self.words = self._words() if self.blend is None else {}
        self.named = corpus.names.asked(query.names)
        for line in self.lines:
            for slot, strength in line.named.items():
                self.named[slot] = max(strength, self.named.get(slot, 0.0))
        self.shares = usage_shares(query.servers_in_use, usage, corpus.slot_of, corpus.slots_of)

    def _words(self) -> dict[int, float]:
        if len(self.lines) < 2:
            return self.lines[0].hits if self.lines else {}
        hits = [line.hits for line in self.lines]
        return fuse_lines(hits, self._whole().hits, max(self.corpus.lexical.live, 1), self._id_of)

    def _whole(self) -> _Line:
        return _Line(self.corpus, "\n".join(line.text for line in self.lines))

    def _blends(self) -> list[Blend]:
        """One for each line and, where there are several, one for all of them together; [] where words alone rank."""
        if self.meaning is None and self.experience is None:
            return []
        told = self.lines if len(self.lines) < 2 else [*self.lines, self._whole()]
        texts, hits = [line.text for line in told], [line.hits for line in told]
        readings: list[Reading] = []
        if self.experience is None:
            blends = self.meaning.blends(texts, hits) if self.meaning is not None and told else []
        else:
            if self.meaning is not None and told:
                readings = self.pipeline.readings(texts, self.meaning)
            blends = self._learned(self.experience, texts, hits, readings)
        if len(blends) > 1:
            from foretool.retrieval.blend import fuse_lines

            blends[-1] = fuse_lines(blends[:-1], blends[-1], self.corpus.ids)
        return blends

    def _learned(
        self,
        experience: Experience,
        texts: Sequence[str],
        hits: Sequence[Mapping[int, float]],
        readings: Sequence[Reading],
    ) -> list[Blend]:
        """The blends with what was learned; one of the history alone where there are no texts and no names."""
        import numpy as np

        from foretool.retrieval.blend import Blend, by_slot, standard, total_of

        if not texts and self.query.names:
            return []
        self.needed = [
            experience.needs_tool(readings[place] if readings else None, text) for place, text in enumerate(texts)
        ]
        if not texts:
            texts, hits = [""], [{}]
        added = [
            experience.parts(
                Query((text,) if text else (), (), self.query.history, self.query.servers_in_use),
                readings[place] if readings else None,
            )
            for place, text in enumerate(texts)
        ]
        if self.meaning is not None and readings:
            factors = experience.factors_for(self.meaning.names)
            blends = self.meaning.blends(texts, hits, readings)
        elif any(added) or experience.graph is not None:
            factors = experience.factors_for("")
            words = [
                np.float32(WORDS_ALONE) * standard(by_slot(hit, len(self.corpus.ids)), experience.live) for hit in hits
            ]
            blends = [Blend(total_of({"lexical": each}, experience.live), {"lexical": each}) for each in words]
        else:
            return []
        return [
            self._welcoming(experience, blend, blend.plus(parts).scaled(factors))
            for blend, parts in zip(blends, added, strict=True)
        ]

    def _welcoming(self, experience: Experience, base: Blend, learned: Blend) -> Blend:
        """With tools that nothing was learned of among the first where words and meaning would have them there."""
        from foretool.retrieval.blend import by_slot, welcomed

        found = experience.newcomers() if len(learned.parts) > len(base.parts) else None
        if found is None:
            return learned
        lifts = welcomed(learned.total, base.total, *found)
        return learned.plus({"new": by_slot(lifts, len(learned.total))}) if lifts else learned

    def _raised(self, blend: Blend) -> Blend:
        """With what the best tools need lifted towards them, a part of its own."""
        graph = self.experience.graph if self.experience is not None else None
        if graph is None:
            return blend
        from foretool.retrieval.blend import by_slot

        order, _ = blend.best(LIFTING, {}, self.corpus.ids)
        best = {tool: score for slot, score in order if (tool := self.corpus.ids[slot]) is not None}
        self.lifted = {tool: each for tool, each in graph.raised(best).items() if tool in self.corpus.slot_of}
        slots = {self.corpus.slot_of[tool]: each.score for tool, each in self.lifted.items()}
        lifts = {slot: max(score - float(blend.total[slot]), 0.0) for slot, score in slots.items()}
        return blend.plus({"graph": by_slot(lifts, len(blend.total))}) if lifts else blend

    def _id_of(self, slot: int) -> str:
        return str(self.corpus.ids[slot])

    def ranking(self, limit: int) -> Ranking:
        order, fitting = self._order(limit) if self.blend is None else self._blended_order(self.blend, limit)
        terms = self._telling_terms()
        return Ranking(
            ranked=tuple(self._ranked(slot, score, terms) for slot, score in order),
            total=fitting,
            evidence=self._evidence(),
        )

    def _order(self, limit: int) -> tuple[list[tuple[int, float]], int]:
        """The best slots with their scores, and how many fit at all."""
        total = self._total()
        if total is self.words and len(self.lines) == 1 and limit <= ENTROPY_DEPTH:
            best = self.lines[0].best[:limit]
        else:
            best = nlargest(limit, total.values())
        least = best[-1] if best else 0.0
        ids = self.corpus.ids
        # Equal scores come in the order of their names, not in the order in which servers happened to answer.
        order = sorted((-score, str(ids[slot]), slot) for slot, score in total.items() if score >= least)[:limit]
        return [(slot, -score) for score, _, slot in order], len(total)

    def _blended_order(self, blend: Blend, limit: int) -> tuple[list[tuple[int, float]], int]:
        boosts = {slot: NAMED * strength for slot, strength in self.named.items()}
        for slot, share in self.shares.items():
            boosts[slot] = boosts.get(slot, 0.0) + share * max(float(blend.total[slot]), LEAST_WORDS)
        return blend.best(limit, boosts, self.corpus.ids)

    def _total(self) -> dict[int, float]:
        if not self.lines and not self.query.names:
            return dict(self.shares)
        if not self.named and not self.shares:
            return self.words
        total = dict(self.words)
        for slot, strength in self.named.items():
            total[slot] = total.get(slot, 0.0) + NAMED * strength
        for slot in total.keys() & self.shares.keys():
            # Also among tools of the same name, whatever their words: the share is small against any other difference.
            total[slot] += self.shares[slot] * max(self.words.get(slot, 0.0), LEAST_WORDS)
        return total

    def _evidence(self) -> tuple[Evidence, ...]:
        asked = (Evidence(named=bool(self.corpus.names.asked((name,)))) for name in self.query.names)
        read = [line.evidence(self.corpus.lexical) for line in self.lines]
        if self.blends:
            read = [replace(each, signs=blend.signs) for each, blend in zip(read, self.blends, strict=False)]
        if any(chance is not None for chance in self.needed):
            read = [replace(each, needed=chance) for each, chance in zip(read, self.needed, strict=False)]
        return (*read, *asked)

    def _ranked(self, slot: int, score: float, terms: Sequence[str]) -> Ranked:
        tool = self.corpus.ids[slot]
        assert tool is not None, f"slot {slot} is ranked and has no tool"
        said = {"lexical": self.words.get(slot, 0.0)} if self.blend is None else self.blend.of(slot)
        named = NAMED * self.named.get(slot, 0.0)
        parts = {"name": named, **said, "usage": score - named - sum(said.values())}
        return Ranked(
            tool=tool,
            score=score,
            parts={name: part for name, part in parts.items() if abs(part) > 1e-5},
            reasons=tuple(self._reasons(slot, tool, terms)),
        )

    def _reasons(self, slot: int, tool: ToolId, terms: Sequence[str]) -> Iterator[str]:
        if slot in self.named:
            yield "name" if self.named[slot] > EXACT - 1.0 else "similar name"
        impacts = self.corpus.lexical.impacts
        has = [term for term in terms if (found := impacts(term)) and found.of(slot)]
        if said := [self._written[term] for term in has if term in self._written][:MAX_REASON_WORDS]:
            yield "words: " + ", ".join(dict.fromkeys(said))
        elif has:
            yield "words alike: " + ", ".join(KINDRED_WORDS[term] for term in has[:MAX_REASON_WORDS])
        elif self.blend is not None and self.meaning is not None:
            yield "meaning"
        if self.experience is not None:
            parts = self.blend.of(slot) if self.blend is not None else {}
            yield from self._learned_reasons(self.experience, parts, tool)
        if tool in self.usage:
            yield "used before"
        if any(slot in self.corpus.slots_of.get(server, ()) for server in self.query.servers_in_use):
            yield "server in use"

    def _learned_reasons(self, experience: Experience, parts: Mapping[str, float], tool: ToolId) -> Iterator[str]:
        history = self.query.history
        if parts.get("tasks", 0.0) >= TELLING:
            yield "like an earlier task"
        if parts.get("history", 0.0) >= TELLING:
            yield f"usually follows {history[-1]}" if history else "often comes first"
        if (lift := self.lifted.get(tool)) is not None:
            yield f"feeds {lift.edge.after}"
        if experience.graph is not None:
            givers = {edge.before for edge in experience.graph.producers(tool)}
            if giver := next((each for each in reversed(history) if each in givers and each != tool), None):
                yield f"takes what {giver} gives"

    def _telling_terms(self) -> list[str]:
        """The terms that tell most, best first."""
        impacts = self.corpus.lexical.impacts
        worth: dict[str, float] = {}
        for line in self.lines:
            for term, weight in line.wanted.items():
                if known := impacts(term):
                    worth[term] = max(weight * known.idf, worth.get(term, 0.0))
        return nlargest(MAX_REASON_TERMS, worth, key=worth.__getitem__)

    @cached_property
    def _written(self) -> dict[str, str]:
        return spelled("\n".join(line.text for line in self.lines))


def digest(text: str) -> bytes:
    """What vectors of a text are known by."""
    return blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()


def needs(lines: Sequence[str]) -> list[str]:
    """The lines that say something, at most `MAX_LINES`; all as one where one of them is a paragraph."""
    said = [line for line in lines if line.strip()]
    if any(len(line.split()) > MAX_NEED_WORDS for line in said):
        return ["\n".join(said)]
    return [*said[: MAX_LINES - 1], "\n".join(said[MAX_LINES - 1 :])] if len(said) > MAX_LINES else said


def _entropy(best: Sequence[float]) -> float:
    weights = [exp(score - best[0]) for score in best]
    total = sum(weights)
    return log(total) - sum(weight * (score - best[0]) for weight, score in zip(weights, best, strict=True)) / total
