"""The tools of a large catalog that are still in the store alone.

A start that reads tens of thousands of definitions keeps its first client waiting for seconds, and a list needs a few
of them. So the store has a summary of the whole catalog, made by a process that knew all of it: how many tools each
server has, and digests of them. While the summary holds, a start reads single tools when somebody asks for them, and
the rest in slices when it searches. Whatever does not fit the summary is read as if there were none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec import Struct

from foretool._version import __version__
from foretool.server.config.servers import Server
from foretool.storage.engine import StorageError
from foretool.storage.records import Tool, ToolId
from foretool.storage.sql.catalog import CatalogStore

if TYPE_CHECKING:  # a prompt hook imports this file, and no event loop
    from foretool.retrieval.word_table import WordTable
    from foretool.storage.steps import Steps

LEAST: Final = 2000
"""Catalogs of fewer tools have no summary: reading all of them takes less than a tenth of a second."""
FORMAT: Final = 2
"""Goes up when a summary says something else, so that older ones do not hold."""
PAGE: Final = 200
"""Tools that one step reads, in some 3 ms."""


Problems = dict[str, tuple[str, ...]]


class ServerSummary(Struct, frozen=True, array_like=True):
    """What a summary says of one server."""

    tools: int
    digest: bytes
    """The digest of its tools as clients see them (`Catalog.digest`)."""
    stored: bytes
    """The digest of its tools as the store has them (`digest_stored`)."""
    has_pages: bool
    """It has pages (MCP Apps)."""


class Summary(Struct, frozen=True, array_like=True):
    """What a start has to know of a catalog."""

    servers: dict[str, ServerSummary]
    pins: tuple[ToolId, ...]
    """The tools that the entries of servers pin."""
    problems: Problems
    """What is wrong with tools and prefixes, by server."""
    read_problems: Problems
    """The same without what is wrong with `tools` of entries."""


class Source(NamedTuple):
    """Where unread tools are: the store, and by server the fingerprint under which it has them."""

    store: CatalogStore
    fingerprints: Mapping[str, str]


class Unread:
    """The servers whose tools nobody has read yet, and single tools of them that somebody has asked for."""

    def __init__(self, summary: Summary, source: Source) -> None:
        self.servers = dict(summary.servers)
        """By name, the servers that are to be read."""
        self.pins = summary.pins
        self.has_changed = False
        """A server that was read has other tools than the summary says."""
        self._source = source
        self._known: dict[ToolId, Tool] = {}
        """By exposed name, what single reads have found; a client may ask for any number of names that do not exist."""

    def get(self, name: ToolId) -> Tool | None:
        """Return one tool as its server lists it. May raise `StorageError`."""
        if (known := self._known.get(name)) is None:
            fits = (
                tool
                for mark, tool in self._source.store.tool_exposed(name)
                if tool.id == name and mark == self._source.fingerprints.get(tool.upstream)
            )
            if (known := next(fits, None)) is None:
                return None
            self._known[name] = known
        return known if known.upstream in self.servers else None

    def read(self, server: str) -> Steps[list[Tool]]:
        """Read the tools of a server, in steps. May raise `StorageError`."""
        found: list[tuple[int, Tool]] = []
        name = ""
        while page := self._source.store.tools_after(server, self._source.fingerprints[server], name, PAGE):
            found += page
            name = page[-1][1].name
            yield
        found.sort(key=itemgetter(0))
        return [tool for _, tool in found]

    def fits(self, server: str, tools: Sequence[Tool]) -> bool:
        """Tell whether these tools of a server are those of the summary."""
        said = self.servers[server]
        return said.tools == len(tools) and said.stored == digest_stored(tools)


def digest_stored(tools: Iterable[Tool]) -> bytes:
    """Return a digest of the tools of a server as the store has them."""
    lines = "".join([f"{tool.id}\0{tool.name}\0{tool.schema_hash}\n" for tool in tools])
    return hashlib.sha256(lines.encode(errors="replace")).digest()


def digest_inputs(entries: Sequence[Server], prefixes: Mapping[str, str], fingerprints: Mapping[str, str]) -> str:
    """Return a digest of everything but the store that tools, their names and what is said of them follow from."""
    digest = hashlib.sha256(f"{FORMAT} {__version__} {list(prefixes.items())}".encode(errors="replace"))
    for each in entries:
        entry = each.entry
        read = (fingerprints[each.name], each.prefix, entry.include, entry.exclude, entry.pin, entry.tools)
        digest.update(f"\n{each.name!r} {read!r}".encode(errors="replace"))
    return digest.hexdigest()


def read_summary(store: CatalogStore, inputs: str) -> Summary | None:
    """Return the summary of these inputs, None if there is none that holds."""
    try:
        found = store.summary(inputs)
        return msgspec.json.decode(found, type=Summary) if found is not None else None
    except (StorageError, msgspec.MsgspecError):
        return None


def words_key(inputs: str) -> str:
    """Return what the words of a catalog are kept under (`large_catalog`); `inputs` as for its summary."""
    return f"words {inputs}"


def read_words(store: CatalogStore, inputs: str) -> WordTable | None:
    """Return the words that are kept, None if there are none that hold."""
    from foretool.retrieval.word_table import WordTable

    try:
        found = store.summary(words_key(inputs))
        return WordTable(found) if found is not None else None
    except (StorageError, ValueError):
        return None
