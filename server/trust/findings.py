"""Findings: what looks wrong in the text that a server shows to models.

`find_suspicious` reads one definition, `find_in_text` any other text of a server. Both depend on their arguments alone.
A finding is shown to the user and blocks nothing by itself (`docs/decisions/0013-findings.md`)."""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from foretool.server.protocol import jsonrpc
from foretool.server.trust.lookalikes import Names, fold_lookalikes
from foretool.server.trust.phrases import DIRECTS, Phrase, Severity, spoken
from foretool.server.trust.text import clean, one_line, visible

READ: Final = 12_000
"""How many characters of one definition are searched for phrases, and of its end a quarter more."""
_EXCERPT: Final = 160
_REPEATED: Final = 200
"""What was found in a text of at most so many characters is kept in memory for the next tool that has it."""
_DEPTH: Final = 12
"""How deep a schema is read."""
STRAY: Final = 2
"""So many zero-width characters in a text are left over from a copied web page, as some real tools have them."""
_STRAY: Final = frozenset("\u200b\u200c\u200d\ufeff\u00ad")
_SCATTERED: Final = 8
"""More zero-width characters than this are a message."""
_GRAVE: Final = re.compile("[\x1b\u202a-\u202e\u2066-\u2069\U000e0000-\U000e0fff]")
"""Tags, selectors, direction marks and escape sequences, which no page leaves behind."""
_MIXED: Final = re.compile(
    r"(?<!\w)(?=\w*[a-zA-Z\uff21-\uff5a])\w*[\u0370-\u052f\uff00-\uff5a]\w*|[\uff21-\uff5a]+|[\U0001d400-\U0001d7ff]+"
)
"""Words that mix Latin with letters that look like it."""
_DIRECTS: Final = re.compile(
    r"\b(?:instead|before|after|when|whenever|replace\w*|supersede\w*|never|always|must|deprecated|broken|incomplete"
    r"|outdated|insecure|should (?:invoke|call|use|run|trigger)|route|reroute|redirect|intercept|override\w*|ignore"
    r"|do not use|don't use|rather than)\b",
    re.IGNORECASE,
)
"""What makes the mention of a tool a direction."""
_SEVERITIES: Final[tuple[Severity, ...]] = ("low", "medium", "high")


class TextFinding(Struct, frozen=True):
    kind: str
    severity: Severity
    """`high` and `medium` are counted in `foretool status`; `low` is only listed."""
    where: str
    """The member that has the text: `description`, `inputSchema.properties.city.description`."""
    excerpt: str
    """The words on one line, with invisible characters written out."""


def find_suspicious(definition: bytes, server: str, others: Names, raw: bytes = b"") -> tuple[TextFinding, ...]:
    """Return the findings on a tool's definition, the gravest first.

    `others` knows the tools of all servers. `raw` is the definition as the server sent it, where its invisible
    characters are still to be seen; `definition` may be the same.
    """
    value = _decode(definition)
    name, description = (str(value.get(key) or "") for key in ("name", "description"))
    found = list(_find_hidden(_decode(raw) if raw else value))
    found += _find_in_names(name, description, server, others)
    found += _find_in_texts(list(_texts(value)), server, others)
    return _gravest_first(found)


def find_in_text(text: str, server: str, others: Names, where: str = "instructions") -> tuple[TextFinding, ...]:
    """Return the findings on a text such as a server's `instructions` or the description of a prompt."""
    return _gravest_first([*_find_hidden(text, where), *_find_in_texts([(where, text)], server, others)])


def counted(findings: tuple[TextFinding, ...]) -> int:
    """Return how many findings are of medium or high severity, which summaries count."""
    return sum(each.severity != "low" for each in findings)


def _gravest_first(found: list[TextFinding]) -> tuple[TextFinding, ...]:
    unique = list({(each.kind, each.where): each for each in reversed(found)}.values())[::-1]
    return tuple(sorted(unique, key=lambda each: -_SEVERITIES.index(each.severity)))


def _decode(data: bytes) -> dict[str, Any]:
    try:
        value = jsonrpc.decode_value(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _finding(kind: str, severity: Severity, where: str, words: str) -> TextFinding:
    return TextFinding(kind, severity, where, one_line(visible(words), _EXCERPT))


# -- texts of a definition


def _texts(value: Any, where: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield every string of a definition, and every key that a schema chooses itself, each with where it stands."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, list):
        for each in value[:200] if depth < _DEPTH else ():
            yield from _texts(each, where, depth + 1)
    elif isinstance(value, dict) and depth < _DEPTH:
        for key, each in value.items():
            if key in ("properties", "$defs") and isinstance(each, dict):
                yield f"{where}.{key}", "\n".join(re.sub(r"[_-]", " ", name) for name in list(each)[:200])
            if key not in ("_meta", "icons", "$schema", "$id", "$ref", "format", "type", "pattern", "required"):
                yield from _texts(each, f"{where}.{key}" if where else key, depth + 1)


def _find_hidden(value: Any, where: str = "") -> Iterator[TextFinding]:
    """Find invisible characters. A few zero-width ones come from copied web pages; tags and direction marks do not."""
    for place, text in _texts(value, where):
        if clean(text) != text:
            hidden = Counter(text) - Counter(clean(text))
            times = sum(hidden.values())
            is_grave = any(_GRAVE.match(each) for each in hidden) or times > _SCATTERED
            is_stray = times <= STRAY and _STRAY.issuperset(hidden)
            severity: Severity = "high" if is_grave else "low" if is_stray else "medium"
            start = next((at for at, each in enumerate(text) if each in hidden), 0)
            shown = visible(text[max(0, start - 40) : start + 80])
            yield _finding("invisible characters", severity, place, shown)


def _find_in_names(name: str, description: str, server: str, others: Names) -> Iterator[TextFinding]:
    if not name.isascii() and fold_lookalikes(name).isascii() and name.lower() != fold_lookalikes(name):
        yield _finding("look-alike letters", "high", "name", f"{name} reads as {fold_lookalikes(name)}")
    if (like := others.lookalike(server, name)) is not None:
        yield _finding("look-alike name", "high", "name", f"{name} looks like {like[1]} of {like[0]}")
    if (like := others.copied(server, name, description)) is not None:
        severity: Severity = "low" if others.are_twins(server, like[0]) else "medium"
        yield _finding("copied tool", severity, "description", f"{name} is described as {like[1]} of {like[0]}")


def _find_in_texts(texts: list[tuple[str, str]], server: str, others: Names) -> Iterator[TextFinding]:
    left = READ
    for where, written in texts:
        text = fold_letters(clean(written))
        if len(text) > left:
            text = text[:left] + "\n" + text[-READ // 4 :]
        left = max(0, left - len(text))
        if len(text) < 8:
            continue
        for phrase, words in _spoken_before(text) if len(text) <= _REPEATED else spoken(text):
            if phrase.kind == DIRECTS and others.are_own(server, words):
                continue
            yield _finding(phrase.kind, phrase.severity, where, words)
        yield from _find_mentions(text, where, server, others)
        yield from _find_payloads(text, where)
        yield from _find_stuffing(text, where)


@lru_cache(maxsize=2048)
def _spoken_before(text: str) -> tuple[tuple[Phrase, str], ...]:
    """Return the phrases in a short text: descriptions of parameters are the same in many tools."""
    return tuple(spoken(text))


def fold_letters(text: str) -> str:
    """Return a text whose letters of other scripts within Latin words are Latin, so that no spelling hides a phrase."""
    return text if text.isascii() else _MIXED.sub(lambda found: fold_lookalikes(found[0]), text)


def _find_mentions(text: str, where: str, server: str, others: Names) -> Iterator[TextFinding]:
    """Find sentences that say how another server's tool is to be used."""
    for at, name, owner in others.mentioned(server, text)[:20]:
        around = text[max(0, at - 80) : at + len(name) + 80]
        severity: Severity = "medium" if _DIRECTS.search(around) else "low"
        yield _finding("another server's tool", severity, where, f"{name} of {owner}: {around}")
        if severity == "medium":
            return


# -- payloads

_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{24,4000}={0,2}")
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2}){16,2000}")
_PAYLOAD: Final = re.compile(
    r"\b(?:curl|wget|bash|powershell|eval|exec|import os|subprocess|os\.system|rm -rf|chmod|nc -"
    r"|ignore (?:all|previous)|exfiltrat|child_process|/bin/(?:ba)?sh)\b|/dev/tcp|\.ssh|id_rsa|/etc/passwd|/bin/(?:ba)?sh|https?://[^\s]+\s*\|",
    re.IGNORECASE,
)


def _find_payloads(text: str, where: str) -> Iterator[TextFinding]:
    """Find encoded text that decodes to a command or an instruction."""
    for found in [*list(_BASE64.finditer(text))[:20], *list(_HEX.finditer(text))[:20]]:
        for decoded in _decoded(found[0]):
            if _PAYLOAD.search(decoded):
                yield _finding("encoded payload", "high", where, f"{found[0][:40]} decodes to {decoded}")
                return


def _decoded(blob: str) -> Iterator[str]:
    """Yield what a blob says in base64 and in hexadecimal, where that is text."""
    for decode in (_from_base64, bytes.fromhex):
        try:
            text = decode(blob).decode("ascii")
        except (ValueError, binascii.Error):
            continue
        if sum(map(str.isprintable, text)) > 0.9 * len(text):
            yield text


def _from_base64(blob: str) -> bytes:
    return base64.b64decode(blob.replace("-", "+").replace("_", "/") + "=" * (-len(blob) % 4))


# -- stuffing

_WORD: Final = re.compile(r"[a-z]{3,}")
_SMALL: Final = (
    "the and for with that this are you from will can not all any use used using when which has have been into only"
    " also than its your their our one two each other more such must should may was were but these those they them"
    " then there here what how who where why tool tools value values default optional required string number true"
    " false null name type list data"
)
_COMMON: Final = frozenset(_SMALL.split())
_STUFFED_WORDS: Final = 60
"""A text with fewer content words is not judged for stuffing."""


def _find_stuffing(text: str, where: str) -> Iterator[TextFinding]:
    """Find text that serves a search rather than a reader: one word over and over, or words without sentences."""
    words = _WORD.findall(text.lower())
    if len(words) < _STUFFED_WORDS:
        return
    content = [each for each in words if each not in _COMMON]
    top, times = Counter(content).most_common(1)[0] if content else ("", 0)
    if times >= 15 and times > 0.2 * len(words):
        yield _finding("stuffed keywords", "medium", where, f"{top!r} {times} times: {text}")
    elif len(content) > 0.93 * len(words) and len(set(content)) > 0.6 * len(content) and "{" not in text:
        # A schema may list hundreds of categories or members.
        severity: Severity = "low" if where.startswith("inputSchema") else "medium"
        yield _finding("stuffed keywords", severity, where, f"{len(words)} words without sentences: {text}")
    if (run := re.search(r"\S(?:[ \t]{120}|[ \t]*(?:\n[ \t]*){25})", text)) is not None and text[run.end() :].strip():
        yield _finding("hidden markup", "medium", where, f"far below: {text[run.end() :].strip()}")
