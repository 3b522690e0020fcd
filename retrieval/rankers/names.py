"""Finds tools that are asked for by name: exactly, in another spelling, with a typing error, or cut short.

BM25 cuts `whois_domain` into two words and may rank other tools before the named one; a client that knows a name must
get that tool. Separators and case never count: "create issue" as a whole line, and `createIssue` or `create_issue`
anywhere in a line, are the same name. A plain word inside a sentence is not a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from foretool.retrieval.ranking import MAX_NEED_WORDS
from foretool.retrieval.words import compact, letter_pairs

ASKED = 4.0
"""The strength of a name in `Query.names`."""
EXACT = 3.0
"""The strength of a name in the text."""
_NEAR = 1.0
"""The strength of a near name; up to 1 more by how much of the name is right."""

_PLACED = 1 / 1024
"""What each further name of a list counts less, so that tools come in the order in which they were named."""

_MAX_NAME = 128
_MAX_GUESSES = 8
"""How many words of one query are compared with every name; each takes a fraction of a millisecond at 5,000 tools."""

_TOKEN = re.compile(r"[^\s\"'`,;(){}\[\]<>!?]+")
_QUOTED = re.compile(r"[`\"']([^\s`\"']+)[`\"']")
_JOINED = re.compile(r"\w[_.:/-]+\w|[a-z][A-Z]")
_SURELY_A_NAME = re.compile(r"[^\W_]_+[^\W_]|^[a-z]+[A-Z]|\w[.:/-]+\w+[.:/-]+\w|\w::\w")
_LIST = re.compile(r"\s*select\s*:(.+)", re.IGNORECASE)
"""How some clients ask for tools by their names: `select:read_file,list_issues`."""
_HEAD = re.compile(
    r"(?:select:\s*)?(?:functions[.:/]|tools[.:/]|@)?(?:mcp(?:__|--|[_.:/]))?(?:plugin_foretool_)?(?:foretool(?:__|--|[_.:/]))?",
    re.IGNORECASE,
)
"""What clients and models put before a name."""
_CLIENT_HEAD = re.compile(r"mcp__.+?__(?=.+__.)")
"""The same of a client that knows us by another name."""
_BEHIND = re.compile(r"(.+?)(?:_mcp_|@)([\w.-]+)")
"""A name with its server behind it."""
_AROUND = frozenset(
    ("please", "use", "using", "call", "run", "invoke", "execute", "the", "a", "tool", "function", "named")
)


class NameIndex:
    """Indexes the names of every slot without regard to their spelling."""

    def __init__(self) -> None:
        self._slots: dict[str, list[int]] = {}  # compact name to slots; a list is never empty
        self._exposed: dict[str, int] = {}  # exposed name to slot
        self._having: dict[str, list[str]] = {}  # keys by each pair of neighbouring letters in them, dropped ones too
        self._unnoted: list[str] = []  # keys that are not in `_having` yet; each takes 6 µs

    def add(self, slot: int, server: str, name: str, exposed: str) -> None:
        """Index a tool by its name, with and without its server, and by its exposed name."""
        for key in _keys(server, name, exposed):
            if key not in self._slots:
                self._slots[key] = []
                self._unnoted.append(key)
            self._slots[key].append(slot)
        self._exposed[exposed] = slot

    def copy(self) -> NameIndex:
        """Return a copy of the index; a change of one does not change the other."""
        copied = NameIndex()
        copied._slots = {key: slots[:] for key, slots in self._slots.items()}
        copied._exposed = dict(self._exposed)
        copied._having = {pair: keys[:] for pair, keys in self._having.items()}
        copied._unnoted = self._unnoted[:]
        return copied

    def drop(self, slot: int, server: str, name: str, exposed: str) -> None:
        for key in _keys(server, name, exposed):
            slots = self._slots.get(key, [])
            if slot in slots:
                slots.remove(slot)
            if not slots:
                self._slots.pop(key, None)
        if self._exposed.get(exposed) == slot:
            del self._exposed[exposed]

    def asked(self, names: Sequence[str]) -> dict[int, float]:
        """Return the scores of the tools with these names, by slot; the first name scores most. A name that no tool
        has stands for the names nearest to it."""
        found: dict[int, float] = {}
        for place, name in enumerate(names):
            self._collect(found, spellings(name), ASKED - place * _PLACED, edits=2)
        return found

    def in_line(self, line: str, *, surely: bool = False) -> dict[int, float]:
        """Return the tools that a line of text names: by slot, how strongly. `surely`: leave out what may be an
        ordinary word, such as "T-test" or "COVID-19" in a sentence."""
        found: dict[int, float] = {}
        guesses, strength = _MAX_GUESSES, EXACT
        for name, edits, is_sure in _candidates(line):
            if surely and not is_sure:
                continue
            written = spellings(name)
            is_known = any(compact(each) in self._slots for each in written)
            if is_known or (edits and guesses):
                guesses -= not is_known
                before = len(found)
                self._collect(found, written, strength, edits)
                strength -= _PLACED * (len(found) > before)
        return found

    def _collect(self, found: dict[int, float], written: Sequence[str], strength: float, edits: int) -> None:
        """Add the tools that a name means, however it is spelled: that with exactly this name alone, else all whose
        names differ in case and joints, else the nearest."""
        exact = next((self._exposed[name] for name in written if name in self._exposed), None)
        keys = [compact(name) for name in written]
        if exact is not None:
            hits: list[tuple[Sequence[int], float]] = [((exact,), strength)]
        elif key := next((key for key in keys if key in self._slots), ""):
            hits = [(self._slots[key], strength)]
        else:
            hits = [(self._slots[name], value) for name, value in self._near(keys[-1], edits)]
        for slots, value in hits:
            for slot in slots:
                found[slot] = max(value, found.get(slot, 0.0))

    def _near(self, key: str, edits: int) -> list[tuple[str, float]]:
        """Return the names that begin with the key and the nearest ones a few typing errors away, with strengths."""
        size = len(key)
        most = min(edits, 0 if size < 5 else 1 if size < 8 else 2)
        if not most:
            return []
        likely = self._likely(key, most)
        found: dict[int, list[str]] = {}
        pairs = letter_pairs(key)
        for name in likely:
            # An edit changes at most three neighbouring pairs.
            if abs(len(name) - size) <= most and len(pairs - letter_pairs(name)) <= 3 * most:
                found.setdefault(distance(key, name, most), []).append(name)
        # A name that begins with the key has all its pairs, and is at most twice as long.
        begun = (name for name in likely if name.startswith(key) and size < len(name) <= 2 * size)
        near = [(name, _NEAR + size / len(name)) for name in sorted(begun)] if edits == 2 and size >= 6 else []
        off = min(found, default=most + 1)
        return near + [(name, _NEAR + 1.0 - off / size) for name in sorted(found[off])] if off <= most else near

    def _likely(self, key: str, edits: int) -> set[str]:
        """Return the names with one of the 3 * edits + 1 rarest pairs of a key: all within `edits` of it, and some
        others."""
        for name in self._unnoted:
            for pair in letter_pairs(name):
                self._having.setdefault(pair, []).append(name)
        self._unnoted.clear()
        pairs = sorted((len(self._having.get(pair, ())), pair) for pair in letter_pairs(key))
        likely = {name for _, pair in pairs[: 3 * edits + 1] for name in self._having.get(pair, ())}
        return likely & self._slots.keys()


def distance(a: str, b: str, limit: int) -> int:
    """Count the edits between two words (insert, delete, replace, swap neighbours); limit + 1 means more than limit."""
    before: list[int] = []
    last = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and y == a[i - 2]:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return limit + 1
        before, last = last, row
    return min(last[-1], limit + 1)


def _keys(server: str, name: str, exposed: str) -> set[str]:
    return {key for key in (compact(name), compact(server + name), compact(exposed)) if key}


def spellings(name: str) -> tuple[str, ...]:
    """Return the ways to read a name: as written, then without what clients put before or behind it."""
    name = name.strip()[:_MAX_NAME]
    heads = (_HEAD.match(name), _CLIENT_HEAD.match(name))
    bare = [name[head.end() :] for head in heads if head is not None and head.end() < len(name)]
    for each in dict.fromkeys((name, *bare)):
        if (parts := _BEHIND.fullmatch(each)) is not None:
            bare.append(f"{parts[2]}__{parts[1]}")
    return tuple(dict.fromkeys((name, *bare)))


def _candidates(line: str) -> Iterator[tuple[str, int, bool]]:
    """Yield the parts of a line that may be names, each with the edits it is allowed, and whether it is surely a
    name."""
    if (listed := _LIST.fullmatch(line[:10_000])) is not None:
        yield from ((name, 2, True) for name in _TOKEN.findall(listed[1]))
        return
    line = line[:10_000]
    words = _TOKEN.findall(line)
    core = _trimmed([word.strip(".:") for word in words])
    if 0 < len(core) <= 8:
        # A whole line of a few words: one word may be misspelt like a name, several only by one letter.
        yield "".join(core), 2 if len(core) == 1 else 1 if len(core) <= 3 else 0, True
    found = {
        word.strip(".:"): (each.start(), 2 if _SURELY_A_NAME.search(word) and "//" not in word else 0)
        for each in reversed(list(_TOKEN.finditer(line)))
        if _JOINED.search(word := each[0])
    }
    quoted = {each[1]: (each.start(), 0) for each in reversed(list(_QUOTED.finditer(line)))}
    is_long = len(words) > MAX_NEED_WORDS  # a paragraph names a tool beside others that it needs
    for word, (_, edits) in sorted((quoted | found).items(), key=lambda item: item[1][0]):
        yield word, edits, not is_long and (edits > 0 or word in quoted)


def _trimmed(words: list[str]) -> list[str]:
    """Remove the words around a name, such as "use the ... tool"; keep the line if nothing else is in it."""
    places = [place for place, word in enumerate(words) if word.lower() not in _AROUND]
    return words[places[0] : places[-1] + 1] if places else words
