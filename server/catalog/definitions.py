"""Reads what servers list: definitions of tools, and prompts, resources and resource templates.

No text leaves here with a credential or an invisible character in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from foretool.server.catalog.names import check_name
from foretool.server.config.servers import Server
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.headers import annotated_schema, schema_problem
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.protocol.lists import PROMPTS, SKILLS, ListKind
from foretool.server.protocol.output_schemas import narrow, without_era
from foretool.server.protocol.skills import read_skill
from foretool.server.trust.approvals import hash_value
from foretool.server.trust.members import clean_member
from foretool.server.trust.text import is_clean, one_line, visible
from foretool.storage.records import Era, Tool, ToolId
from foretool.storage.steps import Steps

_MAX_DEFINITION: Final = 256 * 1024
"""Bytes. A larger definition is dropped, because no client could use it."""
MOST_PROBLEMS, MOST_PROBLEM = 20, 500
"""How many problems of one server are kept, and the characters of each: they quote what it wrote."""


class ListedTools(Struct):
    tools: dict[str, Tool] = field(default_factory=dict)
    """By the server's own names."""
    excluded: set[str] = field(default_factory=set)
    """Those that the config leaves out."""
    problems: list[str] = field(default_factory=list)


class ListProblems:
    """Keeps what is wrong with each list of each server."""

    def __init__(self) -> None:
        self._by_list: dict[str, dict[str, Sequence[str]]] = {}

    def note(self, server: str, list_name: str, problems: Sequence[str]) -> bool:
        """Keep what is wrong with a list, in place of what was wrong with it before; return whether that differs."""
        lists = self._by_list.setdefault(server, {})
        has_changed = list(problems) != list(lists.get(list_name, ()))
        lists[list_name] = problems
        return has_changed

    def of(self, server: str) -> list[str]:
        return [problem for problems in self._by_list.get(server, {}).values() for problem in problems]

    def forget(self, servers: Iterable[str]) -> None:
        for name in servers:
            self._by_list.pop(name, None)


def shorten_problems(problems: Sequence[str]) -> tuple[str, ...]:
    more = [f"and {len(problems) - MOST_PROBLEMS} more like these"] if len(problems) > MOST_PROBLEMS else []
    return (*(problem[:MOST_PROBLEM] for problem in problems[:MOST_PROBLEMS]), *more)


class DefinitionReader:
    """Turns the definitions that servers list into tools, by the config as it is at one time."""

    def __init__(self, entries: Sequence[Server]) -> None:
        self._entries = {entry.name: entry for entry in entries}
        # The same secrets once: each definition is searched for them.
        self._secrets = list(dict.fromkeys(entry.secrets for entry in entries if entry.secrets.values))

    def hide_credentials(self, data: bytes) -> bytes:
        """Return a text of a server without the credentials of any server: it may repeat its environment."""
        for secrets in self._secrets:
            data = secrets.hide_credentials(data)
        return data

    def includes(self, server: str, tool: str) -> bool:
        entry = self._entries.get(server)
        return entry is not None and entry.offers(tool)

    def read(
        self, server: str, definitions: Sequence[Raw], names: Mapping[str, ToolId],
        plain_name: Callable[[str, str], str],
    ) -> Steps[ListedTools]:  # fmt: skip
        """Return the tools of a server's list, in steps. `names`: the exposed names of the tools that it had, by the
        server's own names; new tools get their plain names."""
        listed = ListedTools()
        for position, definition in enumerate(definitions, 1):
            yield
            written = self.hide_credentials(bytes(definition))
            try:
                name, data = _check_definition(Raw(written), self._is_http(server))
            except ValueError as error:
                listed.problems.append(f"tool {position} was dropped: {error}")
                continue
            if name in listed.tools:
                listed.problems.append(f"tool {name!r} was listed twice; the first is used")
                continue
            if not self.includes(server, name):
                listed.excluded.add(name)
            id = names.get(name) or ToolId(plain_name(server, name))
            listed.tools[name] = Tool(id, server, name, data, hash_value(without_era(data)))
        return listed

    def read_texts(self, server: str, definitions: Sequence[Raw]) -> dict[str, tuple[str, bytes]]:
        """Return the hash and the text that definitions would have in the catalog, by the server's own names."""
        texts: dict[str, tuple[str, bytes]] = {}
        for definition in definitions:
            try:
                name, data = _check_definition(Raw(self.hide_credentials(bytes(definition))), self._is_http(server))
            except ValueError:
                continue  # `read` says what is wrong
            texts.setdefault(name, (hash_value(without_era(data)), data))
        return texts

    def read_stored(self, server: str, tools: Sequence[Tool]) -> list[Tool]:
        """Return those tools of the store that the config includes, clean: earlier versions kept invisible
        characters."""
        cleaned = (_clean_tool(tool) for tool in tools if self.includes(server, tool.name))
        return [tool for tool in cleaned if tool is not None]

    def _is_http(self, server: str) -> bool:
        entry = self._entries.get(server)
        return entry is not None and entry.type == "http"


def write_definition(tool: Tool, extra_meta: Mapping[str, Any] | None = None, era: Era = "legacy") -> Raw:
    """Return a tool as a client of an era sees it: under its exposed name, and otherwise as the server or the user
    wrote it. `extra_meta`: members of its `_meta`, None for one that goes."""
    members: dict[str, Any] = jsonrpc.fields(tool.definition if era == "modern" else narrow(tool.definition))
    members["name"] = tool.id
    if requires_task(tool.definition):
        del members["execution"]  # we call it as a task; a client calls it as any other tool
    if extra_meta:
        meta = {**jsonrpc.fields(members.get("_meta", jsonrpc.UNSET)), **extra_meta}
        members["_meta"] = {key: value for key, value in meta.items() if value is not None}
    return jsonrpc.raw(members)


def requires_task(definition: bytes) -> bool:
    """Return whether a tool runs only as a task (2025-11-25: basic, tasks)."""
    if b'"taskSupport"' not in definition:
        return False
    execution = jsonrpc.fields(definition).get("execution")
    return execution is not None and jsonrpc.member(execution, "taskSupport") == "required"


def _clean_tool(tool: Tool) -> Tool | None:
    """Return a stored tool without invisible characters, None where they stand in a name or a key."""
    try:
        cleaned = clean_member(tool.definition)
    except ValueError:
        return None
    if cleaned is tool.definition:
        return tool
    return (
        replace(tool, definition=cleaned, schema_hash=hash_value(without_era(cleaned))) if is_clean(tool.name) else None
    )


def _check_definition(definition: Raw, over_http: bool) -> tuple[str, bytes]:
    """Return the name and the compact bytes of a usable definition. Raises ValueError, which says what is wrong with
    it."""
    name = check_name(jsonrpc.text(jsonrpc.fields(definition).get("name")))
    try:
        members = jsonrpc.fields(clean_member(bytes(definition)))
    except ValueError as error:
        raise ValueError(f"{name!r}: {error}") from None
    schema = members.get("inputSchema")
    if schema is None:
        raise ValueError(f"{name!r} has no inputSchema")
    try:
        parts = jsonrpc.fields(schema)
    except ValueError:
        raise ValueError(f"the inputSchema of {name!r} is not an object") from None
    kind = jsonrpc.text(parts.get("type")) if "type" in parts else None
    if kind is None and "type" not in parts:
        # Strict clients reject a whole list for a missing type; an object is what it means.
        members["inputSchema"] = jsonrpc.raw({"type": "object", **parts})
    elif kind != "object":
        raise ValueError(f'the inputSchema of {name!r} has type {bytes(parts["type"]).decode()}, not "object"')
    if "outputSchema" in members and bytes(members["outputSchema"])[:1] != b"{":
        del members["outputSchema"]  # strict clients reject a whole list for it
    if "_meta" in members and bytes(members["_meta"])[:1] != b"{":
        del members["_meta"]
    data = jsonrpc.encode(members)
    if over_http and (problem := schema_problem(annotated_schema(data))):
        raise ValueError(f"{name!r}: {problem}")
    if len(data) > _MAX_DEFINITION:
        raise ValueError(f"{name!r} is {len(data)} bytes long, over the limit of {_MAX_DEFINITION}")
    return name, jsonrpc.without_line_breaks(data)


def read_members(
    kind: ListKind, listed: Sequence[Raw], hide: Callable[[bytes], bytes]
) -> Steps[tuple[dict[str, Raw], list[str]]]:
    """Return in steps the usable members of a list by what they are asked for by, and what is wrong with the others.

    `hide` takes credentials out of a text.
    """
    members: dict[str, Raw] = {}
    problems: list[str] = []
    one = kind.noun[:-1]
    for position, member in enumerate(listed, 1):
        yield
        try:
            name, cleaned = _read_member(kind, member, hide)
        except ValueError as error:
            problems.append(f"{one} {position} was dropped: {error}")
            continue
        if name in members:
            problems.append(f"{one} {name!r} was listed twice; the first is used")
        members.setdefault(name, cleaned)
    return members, problems


def _read_member(kind: ListKind, member: Raw, hide: Callable[[bytes], bytes]) -> tuple[str, Raw]:
    """Return what a listed member is asked for by, and the member as it may leave us. Raises ValueError."""
    if len(member) > _MAX_DEFINITION:
        raise ValueError(f"it is {len(member)} bytes long, over the limit of {_MAX_DEFINITION}")
    name = jsonrpc.member(member, kind.identifier)
    if kind is PROMPTS:
        name = check_name(name)
    if not name:
        raise ValueError(f"it has no {kind.identifier}")
    if not is_clean(name):
        raise ValueError(f"its {kind.identifier} {one_line(visible(name))!r} has invisible characters")
    members = jsonrpc.fields(Raw(clean_member(hide(bytes(member)))))
    if kind is SKILLS:
        read_skill(member)
    if kind is not PROMPTS:
        members[kind.identifier] = jsonrpc.raw(name)  # a URI stays what it is, or nobody could read what it names
    # Written again, so that no key stands there twice.
    return jsonrpc.text(members[kind.identifier]) or name, jsonrpc.raw(members)
