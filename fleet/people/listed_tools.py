"""Which tools a server has listed to which person, where each reaches it with a token of their own.

The catalog has one definition for each name: the one that was listed to most people. A person finds a tool only if the
definition in the catalog is, letter by letter, the one that the server has listed to that person. So nobody reads a
word that was written for somebody else. A server that writes another text for each person shows it to one of them.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

from foretool.server.catalog.catalog import Catalog
from foretool.server.protocol.jsonrpc import Raw
from foretool.storage.records import Tool

MOST_PEOPLE: Final = 4096
"""People whose lists of one server are known; of one more, who has listed longest ago lists again."""

log = logging.getLogger("foretool.catalog")

_List = Mapping[str, str]
"""The hashes of definitions, by the name that the server gives the tool."""


class _Server:
    """What one server has listed."""

    def __init__(self) -> None:
        self.by_person: OrderedDict[str, _List] = OrderedDict()
        self.holders: dict[str, Counter[str]] = {}
        """By name: how many people have which definition."""
        self.texts: dict[str, bytes] = {}
        """The definitions, by hash."""

    def replace(self, person: str, found: Mapping[str, tuple[str, bytes]]) -> None:
        """Record the list of one person."""
        self._let_go(self.by_person.pop(person, {}))
        self.by_person[person] = {name: digest for name, (digest, _) in found.items()}
        for name, (digest, text) in found.items():
            self.holders.setdefault(name, Counter())[digest] += 1
            self.texts[digest] = text
        if len(self.by_person) > MOST_PEOPLE:
            self._let_go(self.by_person.popitem(last=False)[1])

    def _let_go(self, listed: _List) -> None:
        for name, digest in listed.items():
            holders = self.holders[name]
            holders[digest] -= 1
            if holders[digest] <= 0:
                del holders[digest]
                if not any(digest in each for each in self.holders.values()):
                    self.texts.pop(digest, None)
            if not holders:
                del self.holders[name]


class PersonalTools:
    """Keeps which tools each server with personal tokens has listed to whom."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._servers: dict[str, _Server] = {}
        self._served: dict[str, tuple[int, _List]] = {}
        """By server: the version of the catalog, and what it has of the server then."""
        self._told: set[tuple[str, str]] = set()

    def take_in(self, server: str, person: str, definitions: Sequence[Raw]) -> list[Raw]:
        """Record the list of one person. Returns one definition of each name, for the catalog."""
        known = self._servers.setdefault(server, _Server())
        known.replace(person, self._catalog.reader.read_texts(server, definitions))
        # What nobody has listed since this process began stays: it is shown to nobody, and its words were approved.
        chosen = {tool.name: tool.definition for tool in self._catalog.listed(server)}
        served = self._listed(server)
        for name, holders in known.holders.items():
            most = max(holders.values())
            if holders[served.get(name, "")] < most:
                chosen[name] = known.texts[max(digest for digest, count in holders.items() if count == most)]
            if len(holders) > 1:
                self._tell_once(server, name)
        held = sorted(chosen, key=lambda name: name not in known.holders)  # what somebody has comes first
        return [Raw(chosen[name]) for name in held]

    def sees(self, person: str, tool: Tool) -> bool:
        """Return whether a tool was listed to a person with the same definition as the catalog has."""
        known = self._servers.get(tool.upstream)
        listed = known.by_person.get(person) if known is not None and person else None
        own = listed.get(tool.name) if listed is not None else None
        return own is not None and own == self._listed(tool.upstream).get(tool.name)

    def forget(self, server: str, person: str = "") -> None:
        """Forget what a server has listed to a person, or to everybody."""
        known = self._servers.get(server)
        if not person:
            self._servers.pop(server, None)
        elif known is not None and person in known.by_person:
            known._let_go(known.by_person.pop(person))

    def _listed(self, server: str) -> _List:
        version, found = self._served.get(server, (-1, {}))
        if version != self._catalog.version:
            found = {tool.name: tool.schema_hash for tool in self._catalog.listed(server)}
            self._served[server] = (self._catalog.version, found)
        return found

    def _tell_once(self, server: str, name: str) -> None:
        if (server, name) not in self._told and len(self._told) < MOST_PEOPLE:
            self._told.add((server, name))
            log.warning(
                "server %r describes its tool %r in other words to other people; each of them finds it only if theirs"
                " are those of most", server, name[:100],
            )  # fmt: skip
