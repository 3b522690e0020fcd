"""The corpus: every tool that can be ranked, read once, with its words and names indexed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from msgspec.structs import replace

from foretool.retrieval.document import (
    IN_ENGLISH,
    Document,
    document,
    embedded_text,
    english_words,
    summary_line,
    with_english,
)
from foretool.retrieval.glossary import is_put_into_english, put_into_english
from foretool.retrieval.rankers.bm25 import SERVERS_OWN, Lexical, field_texts
from foretool.retrieval.rankers.deletions import Deeds
from foretool.retrieval.rankers.names import NameIndex
from foretool.retrieval.rankers.servers import ServerNames
from foretool.retrieval.ranking import ALIKE
from foretool.retrieval.words import own_terms, terms
from foretool.storage.records import Tool, ToolId

Shipped = Callable[[Document], tuple[str, ...]]
"""Returns the wordings that come with foretool for a tool; () if it knows none."""

_FEW_GAPS = 256


class ToolIdentity(NamedTuple):
    """What tells a tool from those of other upstreams."""

    upstream: str
    name: str
    words: frozenset[str]
    """Its own terms (`words.own_terms`)."""

    def is_twin(self, other: ToolIdentity) -> bool:
        """Return whether two tools are the same one on two upstreams, such as two entries of one program."""
        shared = len(self.words & other.words)
        return self.name == other.name and shared >= ALIKE * len(self.words | other.words)


class Corpus:
    """Holds the tools of all upstreams, each in a slot that stays its own while the tool is unchanged."""

    def __init__(
        self,
        tools: Sequence[Tool] = (),
        server_texts: Mapping[str, str] | None = None,
        shipped: Shipped | None = None,
    ) -> None:
        """`shipped` gives the wordings of tools that have none of their own; None gives none."""
        self.lexical = Lexical()
        self.names = NameIndex()
        self.server_names = ServerNames()
        """The words by which a task may name each upstream; whoever knows them puts them here."""
        self.ids: list[ToolId | None] = []
        """The tool by slot; None where a tool was dropped."""
        self.slot_of: dict[ToolId, int] = {}
        self.slots_of: dict[str, tuple[int, ...]] = {}
        """The slots of each upstream."""
        self.deeds = Deeds()
        self.digests: list[bytes] = []
        """By slot, the hash of the text that encoders read; empty where a tool was dropped."""
        self.version = 0
        """Goes up with every change."""
        self._plain: list[bytes] = []
        """By slot, the hash of the text that encoders read without its wordings; empty where a tool was dropped."""
        self._said: list[str] = []
        """By slot, the words of a tool's name and first sentence without those of its server's name."""
        self.translated: dict[ToolId, frozenset[str]] = {}
        """The terms that a tool has in the English of what it says in another language alone."""
        self.needing_address: set[ToolId] = set()
        """Tools whose calls have to give a web address."""
        self._wordings: Mapping[bytes, tuple[str, ...]] = {}
        self._shipped = shipped
        self._stale: set[ToolId] = set()
        """Tools whose wordings have changed since they were read."""
        self._known: dict[ToolId, tuple[str, str, str | bytes, str]] = {}  # what each tool was read from
        by_upstream: dict[str, list[Tool]] = {}
        for tool in tools:
            by_upstream.setdefault(tool.upstream, []).append(tool)
        for upstream, theirs in by_upstream.items():
            self.replace(upstream, theirs, (server_texts or {}).get(upstream, ""))

    def __len__(self) -> int:
        return len(self.slot_of)

    @property
    def servers(self) -> list[tuple[int, ...]]:
        """The slots of each server; a tool without a server is alone."""
        alone = ((slot,) for slot in self.slots_of.get("", ()))
        return [*(slots for upstream, slots in self.slots_of.items() if upstream), *alone]

    def copy(self) -> Corpus:
        """Return a copy, without reading the tools again; a change of one does not change the other."""
        copied = Corpus()
        copied.lexical, copied.names, copied.server_names = self.lexical.copy(), self.names.copy(), self.server_names
        copied.ids, copied.digests, copied._plain = self.ids[:], self.digests[:], self._plain[:]
        copied._said, copied.translated = self._said[:], dict(self.translated)
        copied.needing_address = set(self.needing_address)
        copied.slot_of, copied.slots_of = dict(self.slot_of), dict(self.slots_of)
        copied.deeds = self.deeds.copy()
        copied.version, copied._wordings, copied._shipped = self.version, self._wordings, self._shipped
        copied._stale, copied._known = set(self._stale), dict(self._known)
        return copied

    def replace(self, upstream: str, tools: Sequence[Tool], server_text: str = "") -> None:
        """Make `tools` all that this upstream has, none included; unchanged tools are not read again."""
        for _ in self.replacing(upstream, tools, server_text):
            pass

    def replacing(self, upstream: str, tools: Sequence[Tool], server_text: str = "") -> Iterator[None]:
        """Do what `replace` does, and pause after each tool that was read. In a pause the corpus may be searched but
        not changed. The caller has to exhaust the iterator."""
        wanted = {tool.id: (*_source(tool), server_text) for tool in tools}
        before = [each for slot in self.slots_of.get(upstream, ()) if (each := self.ids[slot]) is not None]
        self._drop_all(
            known
            for known in dict.fromkeys([*before, *wanted])
            if known in self._known and (self._known[known] != wanted.get(known) or known in self._stale)
        )
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

    def take_wordings(self, wordings: Mapping[bytes, tuple[str, ...]]) -> set[str]:
        """Read tools with these wordings from now on, each by the hash of the text without them. Returns the upstreams
        whose tools have to be read again, which `replace` does."""
        changed = {
            key for key in wordings.keys() | self._wordings.keys() if wordings.get(key) != self._wordings.get(key)
        }
        self._wordings = wordings
        stale = {tool for tool, key in zip(self.ids, self._plain, strict=True) if tool is not None and key in changed}
        self._stale |= stale
        return {self._known[tool][0] for tool in stale}

    def take_shipped(self, shipped: Shipped | None) -> set[str]:
        """Read tools with these shipped wordings from now on. Returns the upstreams whose tools have to be read again,
        which `replace` does."""
        if shipped is self._shipped:
            return set()
        self._shipped = shipped
        self._stale |= self.slot_of.keys()
        return set(self.slots_of)

    def read(self, tool: Tool, server_text: str = "") -> tuple[Document, bytes]:
        """Return a tool as it is ranked, with its wordings and its English, and the hash of its text without them."""
        read = document(tool, server_text)
        plain = digest(embedded_text(read))
        wordings = self._wordings.get(plain) or (self._shipped(read) if self._shipped is not None else ())
        return with_english(replace(read, wordings=wordings) if wordings else read), plain

    def words_of(self, tool: Tool) -> str | None:
        """Return the own terms of a tool (`words.own_terms`) with spaces between; None for a tool that is not indexed
        as it is."""
        if (slot := self.slot_of.get(tool.id)) is None:
            return None
        return self._said[slot] if self._known[tool.id][:3] == _source(tool) else None

    def identity(self, slot: int) -> ToolIdentity:
        upstream, name = self._known[tool][:2] if (tool := self.ids[slot]) is not None else ("", "")
        return ToolIdentity(upstream, name, frozenset(self._said[slot].split()))

    def _add(self, tool: Tool, server_text: str) -> None:
        read, plain = self.read(tool, server_text)
        slot = self.lexical.add(read)
        self.names.add(slot, tool.upstream, tool.name, tool.id)
        self.deeds.add(slot, tool.name)
        self.ids.append(tool.id)
        self.slot_of[tool.id] = slot
        self.digests.append(digest(embedded_text(read)) if read.wordings or read.english else plain)
        self._said.append(" ".join(own_terms(tool.name, summary_line(read), tool.upstream)))
        self._plain.append(plain)
        if read.needs_address:
            self.needing_address.add(tool.id)
        if read.english is not None:
            own = set[str]().union(*(terms(text) for text in field_texts(read)[:SERVERS_OWN]))
            self.translated[tool.id] = frozenset(terms(english_words(read))) - own
        self._stale.discard(tool.id)
        self.version += 1

    def _drop_all(self, tools: Iterable[ToolId]) -> None:
        gone: dict[str, set[int]] = {}
        for tool in list(tools):
            upstream, slot = self._drop(tool)
            gone.setdefault(upstream, set()).add(slot)
        for upstream, dropped in gone.items():
            kept = (slot for slot in self.slots_of.get(upstream, ()) if slot not in dropped)
            self.slots_of[upstream] = tuple(kept)

    def _drop(self, tool: ToolId) -> tuple[str, int]:
        """Drop a tool; return its upstream and the slot that it had there."""
        slot = self.slot_of.pop(tool)
        upstream, name, _, _ = self._known.pop(tool)
        self.lexical.drop(slot)
        self.names.drop(slot, upstream, name, tool)
        self.deeds.drop(slot)
        self.ids[slot] = None
        self.digests[slot] = self._plain[slot] = b""
        self._said[slot] = ""
        self.translated.pop(tool, None)
        self.needing_address.discard(tool)
        self._stale.discard(tool)
        self.version += 1
        return upstream, slot

    def _compact(self) -> None:
        """Close the gaps that dropped tools left; every slot may get another number. 5,000 tools take .14 s, after as
        many have changed."""
        ids: list[ToolId | None] = [tool for tool in self.ids if tool is not None]
        slot_of = {tool: slot for slot, tool in enumerate(ids) if tool is not None}
        names, slots_of, deeds = NameIndex(), dict[str, list[int]](), Deeds()
        for tool, slot in slot_of.items():
            upstream, name, _, _ = self._known[tool]
            names.add(slot, upstream, name, tool)
            deeds.add(slot, name)
            slots_of.setdefault(upstream, []).append(slot)
        self.lexical.compact()
        self.version += 1
        self._said = [said for tool, said in zip(self.ids, self._said, strict=True) if tool is not None]
        self.ids, self.slot_of, self.names, self.deeds = ids, slot_of, names, deeds
        self.digests = [each for each in self.digests if each]
        self._plain = [each for each in self._plain if each]
        self.slots_of = {upstream: tuple(slots) for upstream, slots in slots_of.items()}


def _source(tool: Tool) -> tuple[str, str, str | bytes]:
    return tool.upstream, tool.name, tool.schema_hash or tool.definition


def digest(text: str) -> bytes:
    """Hash a text that encoders read; vectors are kept under this hash."""
    return blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()


def digest_query(text: str) -> bytes:
    """Hash a text to search with. One in another language is read in English (`glossary`), so what was kept before a
    glossary knew its words stands under another hash."""
    return digest(f"{text}{IN_ENGLISH}{put_into_english(text)}" if is_put_into_english(text) else text)
