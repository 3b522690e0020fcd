"""Reads the definition of a tool: the texts that ranking reads, its one line in an answer, what it takes and gives.

A definition comes from a stranger: any key may be missing, of another type, or a megabyte long. Nothing here raises.
A field is known by its words (`userId` and `user_id` are "user id"). What a tool gives stands in its `outputSchema`.
Without one its name tells: `list_issues` and `create_issue` give issues, and so their ids.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from foretool.retrieval.glossary import is_unspaced, language_of_tool, put_into_english, translated
from foretool.retrieval.words import chunks, in_words, stem
from foretool.storage.records import Tool, ToolId

_MAX_DESCRIPTION = 8_000
_MAX_PARAMETERS = 200
_MAX_NAME = 40
_MAX_PARAMETER_TEXT = 1_000
_MAX_ENUM_VALUES = 12
MAX_SERVER_TEXT = 200
"""How many characters of a server's description count; more make the tools of one server look alike."""
MAX_SUMMARY = 120
_MAX_EMBEDDED = 2_000
"""How many characters of a description are embedded; encoders cut at 128 to 256 tokens."""
EMBEDDED_PARAMETERS = 60
"""How many names of parameters are embedded."""
READING = "\x1e"
"""What stands between the readings of an embedded text: the text itself, then each wording. It counts as white space,
so no text of a server brings one in."""
IN_ENGLISH = "\x1f"
"""What stands between the first reading and the same in English, where that differs; white space too."""
_DEPTH = 3
"""How deep an `outputSchema` is read: a list of issues has its ids on the second level."""

_MAX_HEADINGS = 8
"""How many lines above a first sentence are skipped."""
_HEADING = re.compile(r"#{1,6}\s.*|<[A-Za-z][\w-]{0,30}>|")
_LABEL = re.compile(r"\W{0,4}\w{1,20}(?: \w{1,20}){0,2}:?")
_LIST_MARK = re.compile(r"\A(?:[-*•]|\d{1,2}[.)])\s+")

_GENERIC = "status result results message response output success error errors data content value text ok code items"
GENERIC = frozenset(_GENERIC.split())
"""Names of fields that say nothing about their content."""
_IDENTIFIERS = "id ids key token uuid guid slug number sha ref handle arn uri session cursor"
IDENTIFIERS = frozenset(_IDENTIFIERS.split())
"""The last word of a field whose value only another call can give."""
_GIVING = "list search find query get fetch read lookup create add make new register login open start"
GIVING = frozenset(_GIVING.split())
"""The first word of the name of a tool that answers with the things it names."""

_MARK = r"(?:\be\.\s?g\.?|\beg[.:,]|\be\.x\.|\bfor (?:example|instance)\b|\bexamples?\s*[:=])"
_EXAMPLE = re.compile(
    rf"\(\s*{_MARK}([^)]*)\)?|\[\s*{_MARK}([^\]]*)\]?|{_MARK}(.*?)(?:[.;](?=\s|$)|$)", re.IGNORECASE | re.MULTILINE
)
"""An example in a sentence or in brackets."""
_VALUE = re.compile(r"[/:@_.\d]\w")
"""What a value has and a word has not: `Asia/Tokyo`, `2024-01-31`, `me@example.com`."""

_ADDRESSES = frozenset(("url", "urls", "link", "links", "website", "webpage"))
"""The last word of a parameter that is a web address."""

_PUNCTUATION = ".,:;!?()'\""

# It begins with the marks that end a sentence, so that the engine skips whatever stands between them.
_SENTENCE_END = re.compile(r"[.!?。！？\n](?:(?<=[.!?])(?=\s)|(?<=[。！？])|(?<=\n)\s*[\n*#-])")  # noqa: RUF001 (full-width marks end Chinese sentences)


class Document(Struct, frozen=True):
    """What a tool says about itself, field by field, as written."""

    id: ToolId
    server: str
    name: str
    title: str = ""
    description: str = ""
    parameters: tuple[str, ...] = ()
    """Names of the top-level parameters."""
    parameter_texts: tuple[str, ...] = ()
    """Descriptions and the first enum values of the parameters, without the values in their examples."""
    server_text: str = ""
    wordings: tuple[str, ...] = ()
    """How people may word wishes that the tool serves. A language model wrote them, not the server."""
    english: Document | None = None
    """The same with English words in place of others, which `glossary` gave and not the server; None where all is
    English."""
    language: str = ""
    """The code of the language in which the tool is described, where `english` has another."""
    needs_address: bool = False
    """Whether a call has to give a web address."""


def document(tool: Tool, server_text: str = "") -> Document:
    """Read a tool's definition; a missing or malformed part stays empty."""
    definition = _decode(tool.definition)
    taken = _as_object(definition.get("inputSchema") or definition.get("input_schema"))
    parameters = dict(islice(_parameters(taken), _MAX_PARAMETERS))
    return Document(
        id=tool.id,
        server=tool.upstream,
        name=tool.name,
        title=_text(definition.get("title"))[:_MAX_PARAMETER_TEXT],
        description=_text(definition.get("description"))[:_MAX_DESCRIPTION],
        parameters=tuple(parameters),
        parameter_texts=tuple(text for text in parameters.values() if text),
        server_text=server_text[:MAX_SERVER_TEXT],
        needs_address=_needs_address(taken),
    )


def with_english(document: Document) -> Document:
    """Return a tool with what it says in English, if it says anything in another language."""
    said = (document.description, document.title, document.server_text)
    named = (document.server, document.name, *document.parameters, *document.parameter_texts)
    language = language_of_tool("\n".join(said), named)
    if language is None:
        return document

    def put(text: str) -> str:
        return put_into_english(text, language)

    english = Document(
        id=document.id,
        server=put(document.server),
        name=put(_name_in_words(document.name)),
        title=put(document.title),
        description=put(document.description),
        parameters=tuple(put(_name_in_words(each)) for each in document.parameters),
        server_text=put(document.server_text),
    )
    return replace(document, english=english, language=language)


def summary_line(document: Document) -> str:
    """Return the first sentence of the description in one line of at most 120 characters."""
    return first_sentence(document.description.strip() or document.title.strip() or in_words(document.name))


def first_sentence(text: str, most: int = MAX_SUMMARY) -> str:
    """Return the first sentence of a text in one line of at most `most` characters, without headings above it."""
    return cut_at_word(whole_sentence(text), most)


def whole_sentence(text: str) -> str:
    """Return the first sentence of a text in one line, however long it is, without headings above it."""
    text = _skip_headings(text)
    if (end := _SENTENCE_END.search(text)) is not None:
        text = text[: end.start() + 1]  # with the mark, or with a line break that `split` drops
    return " ".join(text.split())


def _skip_headings(text: str) -> str:
    """Return a text without what stands above its first sentence: headings, tags, and labels and marks of a list."""
    lines = text.strip().split("\n", _MAX_HEADINGS)
    for at, line in enumerate(lines[:-1]):
        below = next(filter(None, map(str.strip, lines[at + 1 :])), "")
        if _HEADING.fullmatch(line.strip()) or (_LABEL.fullmatch(line.strip()) and _LIST_MARK.match(below)):
            continue
        return _LIST_MARK.sub("", "\n".join(lines[at:]).strip(), count=1)
    return _LIST_MARK.sub("", lines[-1].strip().lstrip("# "), count=1)


def cut_at_word(text: str, most: int) -> str:
    """Return a text of at most `most` characters; one that was cut ends in "…", after a whole word."""
    if len(text) <= most:
        return text
    head, space, _ = text[:most].rpartition(" ")
    # A text without spaces (Chinese, a URL) is cut anywhere rather than down to nothing.
    return (head.rstrip() if space and len(head) > most // 2 else text[: most - 1]) + "…"


def embedded_text(document: Document) -> str:
    """Return the text that an encoder reads for a tool: server, name, description, parameter names, the server's own
    words. A model's limit cuts off the end. Each wording is a reading of its own (`encoders.base.embed_readings`), and
    encoders that read English alone take the English of the first one. Descriptions of parameters and enum values were
    tried and added nothing."""
    first = _said(document, document.wordings)
    if document.english is not None and (english := _said(document.english, document.wordings)) != first:
        first = f"{first}{IN_ENGLISH}{english}"
    return READING.join((first, *(" ".join(each.split()) for each in document.wordings)))


def _said(document: Document, wordings: tuple[str, ...]) -> str:
    parts = [in_words(document.name) + "."]
    if document.server:
        parts.insert(0, in_words(document.server) + ":")
    if text := " ".join((document.description or document.title)[:_MAX_EMBEDDED].split()):
        parts.append(text if text.endswith((".", "!", "?")) else text + ".")
    if wordings:
        parts.append("; ".join(wordings) + ".")
    if document.parameters:
        parts.append(f"Parameters: {', '.join(map(in_words, document.parameters[:EMBEDDED_PARAMETERS]))}.")
    if document.server_text:
        parts.append(document.server_text)
    return " ".join(" ".join(parts).split())


def wording_words(document: Document) -> str:
    """Return the wordings without names and values: `Ada Lovelace` and `notes.txt` stand for any person and any file.
    What the tool itself says stays, and so do abbreviations (`PDF`) and the first word of a wording."""
    if not document.wordings:
        return ""
    said = (document.server, document.name, document.title, document.description, document.server_text)
    own = {word for text in said for chunk in chunks(text) for word in (chunk.lower(), *in_words(chunk).split())}
    return "\n".join(" ".join(_words_of_wish(each.split(), own)) or each for each in document.wordings)


def english_words(document: Document) -> str:
    """Return the English of the words that a tool says in another language, one known word or phrase a line; "" for a
    tool in English."""
    if document.english is None:
        return ""
    names = map(_name_in_words, (document.name, *document.parameters))
    said = (document.title, document.description, *document.parameter_texts, *names)
    pieces = (piece for text in said for piece in translated(text, document.language))
    return "\n".join(piece.english for piece in pieces if piece.english)


def _name_in_words(name: str) -> str:
    """Return the words of a name, of which a glossary may know some; one of a script without spaces as it is."""
    return in_words(name) if not is_unspaced(name) else name


def _words_of_wish(words: list[str], own: set[str]) -> Iterator[str]:
    for place, word in enumerate(words):
        bare = word.strip(_PUNCTUATION)
        is_name = place > 0 and bare[:1].isupper() and not bare.isupper() and bare.lower() not in own
        if not is_name and not bare.isdecimal() and not _VALUE.search(bare):
            yield word


def _decode(definition: bytes) -> dict[str, Any]:
    """Decode a definition; an empty one for other bytes."""
    try:
        return _as_object(msgspec.json.decode(definition))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def _parameters(taken: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the top-level parameters of an input schema as (name, text), with those of `allOf`, `anyOf` and `oneOf`
    members."""
    for part in _alternatives(taken, taken):
        for name, schema in _properties(part):
            yield name, " ".join(_schema_texts(_as_object(schema), taken))[:_MAX_PARAMETER_TEXT]


def _needs_address(taken: dict[str, Any]) -> bool:
    """Return whether an input schema requires a web address, as far as the name of a parameter tells."""
    required = taken.get("required")
    if not isinstance(required, list):
        return False
    names = (name[-_MAX_NAME:] for name in required[:_MAX_PARAMETERS] if isinstance(name, str))
    return any(not _ADDRESSES.isdisjoint(in_words(name).split()[-1:]) for name in names)


def _schema_texts(schema: dict[str, Any], root: dict[str, Any]) -> Iterator[str]:
    for part in _alternatives(schema, root):
        if text := _text(part.get("description"))[:_MAX_PARAMETER_TEXT]:
            yield _EXAMPLE.sub(_without_values, text)
        values = part.get("enum")
        if isinstance(values, list):
            yield from (value for value in values[:_MAX_ENUM_VALUES] if isinstance(value, str))


def _without_values(example: re.Match[str]) -> str:
    """Return the words of an example: a value says what a parameter may look like, and nothing of what a tool is for.
    The words stay, because they tell (`docs/benchmarks.md`)."""
    return f" {' '.join(word for word in (example[example.lastindex or 0]).split() if not _VALUE.search(word))} "


def _alternatives(schema: dict[str, Any], root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a schema, what it refers to, its array items and the members it combines; one level, so cycles do no
    harm."""
    yield schema
    if (target := follow_reference(schema, root)) is not schema:
        yield target
    yield follow_reference(schema.get("items"), root)
    for members in _combined(schema):
        yield from (follow_reference(member, root) for member in members[:_MAX_ENUM_VALUES])


# What a tool takes and gives: the two ends of a dependency


class Fields(Struct, frozen=True):
    """A tool's name, parameters and result fields as words, from which priors and dependencies are estimated."""

    id: ToolId
    upstream: str
    verb: str
    nouns: frozenset[str]
    """The stems of the words of its name, without the verb."""
    takes: dict[str, bool]
    """By the words of a parameter, whether the tool requires it."""
    gives: frozenset[str]
    """The words of each result field that says something; empty without an `outputSchema`."""


def definition_fields(tool: Tool) -> Fields:
    """Read a definition; a missing or malformed part is left out."""
    definition = _decode(tool.definition)
    taken, given = _as_object(definition.get("inputSchema")), _as_object(definition.get("outputSchema"))
    required = taken.get("required")
    wanted = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    verb, *rest = in_words(tool.name).split() or [""]
    return Fields(
        id=tool.id,
        upstream=tool.upstream,
        verb=verb,
        nouns=frozenset(map(stem, rest)),
        takes={in_words(name): name in wanted for name, _ in _properties(taken)},
        gives=frozenset(_given(given, _DEPTH) - GENERIC),
    )


def identifies(field: str) -> str | None:
    """Return the thing that a field identifies: "issue" for "issue number", "" for "id" alone; None for other
    fields."""
    *rest, last = field.split() or [""]
    return " ".join(map(stem, rest)) if last in IDENTIFIERS else None


def _given(root: dict[str, Any], depth: int) -> set[str]:
    """Return the words of the fields in the first `depth` levels; array items stay on the level of their array. Each
    schema is read once, where it stands highest, so one that refers to itself does no harm."""
    found: set[str] = set()
    seen: set[int] = set()
    waiting = deque([(root, depth)])
    while waiting:
        schema, left = waiting.popleft()
        if not schema or not left or id(schema) in seen:
            continue
        seen.add(id(schema))
        properties = dict(_properties(schema))
        found.update(map(in_words, properties))
        members = chain(properties.values(), *_combined(schema))
        waiting.extend((follow_reference(member, root), left - 1) for member in members)
        waiting.appendleft((follow_reference(schema.get("items"), root), left))
    return found


# JSON Schema


def _properties(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return islice(_as_object(schema.get("properties")).items(), _MAX_PARAMETERS)


def _combined(schema: dict[str, Any]) -> Iterator[list[Any]]:
    """Yield the members that a schema combines, by keyword."""
    return (found for word in ("allOf", "anyOf", "oneOf") if isinstance(found := schema.get(word), list))


def follow_reference(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema itself, or what its local `$ref` such as `#/$defs/Name` points at."""
    path = _text(_as_object(schema).get("$ref"))
    if not path.startswith("#/"):
        return _as_object(schema)
    found: Any = root
    for step in path[2:].split("/"):
        found = _as_object(found).get(step.replace("~1", "/").replace("~0", "~"))
    return _as_object(found) or _as_object(schema)


def _as_object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
