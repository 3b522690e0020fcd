"""Cuts results of tools that are longer than `result_tokens`, and hands out the rest.

A text is cut behind a paragraph, a line, a sentence or a word. The rest stays with the session: `read_more`, which is
called through `call_tool`, returns it part by part, and the resource link returns all of it. What cannot be cut without
losing something or breaking the tool's `outputSchema` passes whole.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from foretool.retrieval.tokens import estimate
from foretool.server.catalog.names import READ_MORE
from foretool.server.clients.exchange import Exchange
from foretool.server.clients.kept_results import KeptResults, Rest
from foretool.server.config.loader import Config, LiveConfig
from foretool.server.protocol import jsonrpc, translate
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.trust.policy import TrustPolicy
from foretool.storage.records import Tool

SCHEME: Final = "foretool://result/"
"""How the URIs of kept rests begin. No upstream is asked for such a resource."""
LEAST_REST: Final = 400
"""Characters. A shorter rest is not cut off: to name it would take as many tokens."""
_MOST_BLOCKS: Final = 10_000
"""A result of more blocks passes whole: to read a million of them takes seconds, in which nobody else is answered."""
_LINKS_SINCE: Final = "2025-06-18"
"""The first version of the protocol whose results may hold resource links."""

_STEP: Final = 1000
"""Characters that are counted at once."""
_ENDS: Final = (re.compile(r"\n\s*\n"), re.compile(r"\n"), re.compile(r"[.!?。]\s"), re.compile(r"\s"))
"""Where a text may be cut, the best place first."""
_LEAST_SHARE: Final = 0.6
"""How much of what fits has to stay before such a place; else the next kind of place is looked for."""

_ANNOTATIONS: Final = frozenset({"type", "title", "description", "default", "examples", "deprecated"})
"""Keywords of a schema that let any string stand."""
_OBJECT: Final = frozenset(
    {"type", "properties", "required", "additionalProperties", "title", "description", "$schema"}
)


class _Text(NamedTuple):
    """A block of a result that holds text."""

    place: int
    members: dict[str, Any]
    text: str
    uri: str
    """Of an embedded resource, else ""."""

    def with_text(self, text: str) -> dict[str, Any]:
        if not self.uri:
            return {**self.members, "text": text}
        return {**self.members, "resource": {**self.members["resource"], "text": text}}


class LongResults:
    """Cuts long results, and answers `read_more` and `resources/read` of what was cut off."""

    def __init__(self, config: LiveConfig, policy: TrustPolicy, kept: KeptResults) -> None:
        self._config = config
        self._policy = policy
        self._kept = kept

    # -- cutting

    def fit(self, exchange: Exchange, tool: Tool, result: Raw) -> Raw:
        """Return a result within the budget of its tool, or unchanged. Programs get every result whole."""
        limit = self._limit(tool)
        # No text has more tokens than bytes, and most results are decided here.
        if not limit or len(result) <= limit or exchange.client.is_program:
            return result
        try:
            members: dict[str, Any] = jsonrpc.fields(result)
            blocks: list[Any] = jsonrpc.items(members["content"])
            texts = list(_texts(blocks)) if len(blocks) <= _MOST_BLOCKS else []
        except (KeyError, ValueError):
            return result
        left, place = limit, 0
        while place < len(texts) and (used := _cost(texts[place].text, left)) is not None:
            left -= used
            place += 1
        if place == len(texts):
            return result
        block = texts[place]
        head = beginning(block.text, left) if left > 0 else ""
        rest = _join(block, block.text[len(head) :], texts[place + 1 :])
        if len(rest) < LEAST_REST:
            return result
        has_structure = "structuredContent" in members
        if has_structure and len(texts) > 1:
            return result
        structure = _find_string(members, tool.definition, block, blocks[block.place], limit) if has_structure else None
        if has_structure and structure is None:
            return result
        ident = self._kept.keep(exchange.own_session.record.key, Rest(tool.id, tool.upstream, rest, limit))
        if ident is None:
            return result
        said = cut_line(ident, 0, limit - left + estimate(head), rest, head or block.text[:_STEP])
        if structure is not None:
            # Many clients show a model nothing else of such a result.
            members["structuredContent"] = structure.replaced(f"{head}\n\n{said}")
        dropped = {each.place for each in texts[place + 1 :]}
        blocks = [each for at, each in enumerate(blocks) if at not in dropped]
        at = block.place
        blocks[at : at + 1] = [block.with_text(head)] if head else []
        blocks.append({"type": "text", "text": said})
        if exchange.era == "modern" or exchange.client.version >= _LINKS_SINCE:
            blocks.append(_link(ident, tool))
        return jsonrpc.raw({**members, "content": blocks})

    def _limit(self, tool: Tool) -> int:
        """Return the tokens that a result of a tool may have; 0 means any number."""
        server = self._config.now.servers.get(tool.upstream)
        own = server.result_tokens(tool.name) if server is not None else None
        return self._config.settings.result_tokens if own is None else own

    # -- reading on

    def read_more(self, exchange: Exchange, raw: Raw) -> None:
        """Answer a call of `read_more` with the next part of what was cut off."""
        arguments = jsonrpc.plain_object(raw) or {}
        ident, start = arguments.get("result"), arguments.get("from", 0)
        rest = self._find(exchange, ident)
        if rest is None:
            exchange.tool_error(f"{READ_MORE}: {_missing(ident)}")
            return
        if type(start) is not int or not 0 <= start <= len(rest.text):
            exchange.tool_error(
                f'{READ_MORE}: expected "from" between 0 and {len(rest.text)}; the line below each part names the next'
            )
            return
        part = beginning(rest.text[start : start + _most_characters(rest.part_tokens)], rest.part_tokens)
        end = start + len(part)
        if len(rest.text) - end < LEAST_REST:
            part, end = rest.text[start:], len(rest.text)
        said = "This was the last part." if end == len(rest.text) else ""
        said = said or cut_line(str(ident), end, estimate(part), rest.text[end:], part)
        exchange.own_result(translate.text_result(part, said))

    def read_resource(self, exchange: Exchange, uri: str) -> None:
        """Answer `resources/read` of a URI that begins with `SCHEME` with all that was cut off."""
        rest = self._find(exchange, uri.removeprefix(SCHEME))
        if rest is None:
            code = jsonrpc.INVALID_PARAMS if exchange.era == "modern" else jsonrpc.RESOURCE_NOT_FOUND
            exchange.error(code, f"Resource not found: {uri}", {"uri": uri})
            return
        exchange.own_result({"contents": [{"uri": uri, "mimeType": "text/plain", "text": rest.text}]})

    def _find(self, exchange: Exchange, ident: Any) -> Rest | None:
        """Return a rest of the session that asks, unless its server no longer belongs to the client's profile."""
        rest = self._kept.get(exchange.own_session.record.key, ident) if isinstance(ident, str) else None
        if rest is None or not self._policy.reach(exchange.client.profile).admits(rest.upstream):
            return None
        return rest


def cuts_results(config: Config) -> bool:
    """Return whether results of any tool may be cut."""
    return bool(config.settings.result_tokens or any(each.entry.result_tokens for each in config.servers.values()))


def beginning(text: str, tokens: int) -> str:
    """Return the beginning of a text that has at most about `tokens` tokens and ends at a sensible place."""
    end, used = 0, 0
    while end < len(text):
        step = estimate(text[end : end + _STEP])
        if used + step > tokens:
            break
        end, used = min(end + _STEP, len(text)), used + step
    if end == len(text):
        return text
    least, most = 0, _STEP  # of the step that no longer fits
    while least + 1 < most:
        middle = (least + most) // 2
        if used + estimate(text[end : end + middle]) <= tokens:
            least = middle
        else:
            most = middle
    return text[: _sensible_end(text, max(end + least, 1))]


def cut_line(ident: str, start: int, shown: int, rest: str, sample: str) -> str:
    """Say in one line how much was shown, how much is left, and how to read on. `sample`: text that tells how many
    tokens a character has."""
    left = round(len(rest) * max(estimate(sample), 1) / max(len(sample), 1))
    arguments = f'{{"result": "{ident}", "from": {start}}}'
    return (
        f"[foretool shows about {shown:,} tokens of this result; about {max(left, 1):,} are left. "
        f'Next part: call_tool with {{"name": "{READ_MORE}", "arguments": {arguments}}}]'
    )


def _sensible_end(text: str, most: int) -> int:
    """Return the best place at or before `most` to cut a text."""
    least = int(most * _LEAST_SHARE)
    window = text[least:most]
    for kind in _ENDS:
        if ends := [found.end() for found in kind.finditer(window)]:
            return least + ends[-1]
    return most


def _most_characters(tokens: int) -> int:
    """Return how many characters are more than any part of so many tokens holds: a blank has the least, 0.06."""
    return 20 * tokens + 2 * _STEP


def _cost(text: str, tokens: int) -> int | None:
    """Return the tokens of a text, None if there are more than `tokens`. Counts no further than that."""
    used = 0
    for start in range(0, len(text), _STEP):
        used += estimate(text[start : start + _STEP])
        if used > tokens:
            return None
    return used


def _texts(blocks: list[Any]) -> Any:
    """Yield the blocks that hold text. Raises ValueError for blocks that cannot be read."""
    for place, raw in enumerate(blocks):
        members = jsonrpc.plain_object(raw) if b'"text"' in bytes(raw) else None
        if members is None:
            continue
        inner = members.get("resource")
        if members.get("type") == "text" and isinstance(members.get("text"), str):
            yield _Text(place, members, members["text"], "")
        elif members.get("type") == "resource" and isinstance(inner, dict) and isinstance(inner.get("text"), str):
            yield _Text(place, members, inner["text"], str(inner.get("uri")))


def _join(block: _Text, tail: str, others: list[_Text]) -> str:
    """Return what was cut off as one text: the end of a block and the blocks after it."""
    parts = [f"{block.uri}\n{tail}" if block.uri and tail == block.text else tail]
    parts += (f"{each.uri}\n{each.text}" if each.uri else each.text for each in others)
    return "\n\n".join(parts)


def _link(ident: str, tool: Tool) -> dict[str, Any]:
    return {
        "type": "resource_link",
        "uri": f"{SCHEME}{ident}",
        "name": f"rest of {tool.id}",
        "description": "All that was cut off this result, until the session ends.",
        "mimeType": "text/plain",
    }


def _missing(ident: Any) -> str:
    if not isinstance(ident, str) or not ident:
        return 'expected "result", the id that the line below a cut result names'
    return f"this session has no result {ident[:40]!r}; it may have made room for newer ones: call its tool again"


# -- structured content


class _Structure(NamedTuple):
    """Structured content that holds the text of the result once."""

    members: dict[str, Any]
    key: str | None
    """None where the content is the text itself."""

    def replaced(self, text: str) -> Raw:
        return jsonrpc.raw(text if self.key is None else {**self.members, self.key: text})


def _find_string(members: dict[str, Any], definition: bytes, block: _Text, raw: Raw, limit: int) -> _Structure | None:
    """Return where structured content repeats the text of a block and its schema lets any string stand, None if it does
    not. `raw`: the block as it was written."""
    text = block.text
    try:
        written_block = jsonrpc.fields(raw)
        spelling = (jsonrpc.fields(written_block["resource"]) if block.uri else written_block)["text"]
        written_content = members["structuredContent"]
        # A server writes a text twice in the same way. What stands beside it is small, or takes seconds to decode.
        others_size = len(written_content) - len(spelling)
        if others_size > 4 * _most_characters(limit) or bytes(spelling) not in bytes(written_content):
            return None
        content = jsonrpc.decode_value(written_content)
        written = jsonrpc.fields(definition).get("outputSchema")
        schema = jsonrpc.decode_value(written) if written is not None else {"type": "object"}
    except ValueError:
        return None
    if content == text:
        return _Structure({}, None) if _takes_any_string(schema) else None
    if not isinstance(content, dict) or not isinstance(schema, dict):
        return None
    keys = [key for key, value in content.items() if value == text]
    others = {key: value for key, value in content.items() if key not in keys}
    if len(keys) != 1 or _cost(jsonrpc.encode(others).decode("utf-8", "replace"), limit) is None:
        return None
    if written is not None and not _takes_string_at(schema, keys[0]):
        return None
    return _Structure(jsonrpc.fields(members["structuredContent"]), keys[0])


def _takes_string_at(schema: dict[str, Any], key: str) -> bool:
    """Return whether a schema of an object lets any string stand under a key."""
    known = all(each in _OBJECT or each.startswith("x-") for each in schema)
    properties = schema.get("properties")
    return known and isinstance(properties, dict) and _takes_any_string(properties.get(key))


def _takes_any_string(schema: Any) -> bool:
    if not isinstance(schema, dict) or schema.get("type") != "string":
        return False
    return all(each in _ANNOTATIONS for each in schema)
