"""Which server a resource belongs to, within one profile.

A URI belongs to the server that lists it: of several, to the first that did, then to the first in the config. A URI
that nobody lists belongs to one server as well, or to none. It is never shown to several servers to see who knows it.

A template that leaves the place open (`https://{+path}`, `memo://{+path}`) says nothing of who a URI belongs to. It
counts where nobody else uses its scheme, which must not be one that servers share.

Whether a URI fits a template (RFC 6570) is found in time that grows with the length of the URI alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from foretool.server.protocol.apps import is_page, named_in
from foretool.storage.steps import Steps

_MOST_CHARACTERS: Final = 2048
MOST_EXPRESSIONS: Final = 32
"""Templates that are longer or hold more expressions fit nothing."""

_expression = re.compile(r"\{[^{}]*\}")
_scheme = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


class UriTemplate(Struct, frozen=True):
    """A URI template, cut into the literal texts between its expressions. An expression matches any text."""

    text: str
    literals: tuple[str, ...]

    @property
    def head(self) -> str:
        """The text with which every matching URI begins."""
        return self.literals[0]

    @property
    def names_scheme(self) -> bool:
        """Whether its first literal contains the scheme; else it would match the URIs of every server."""
        return _scheme.match(self.head) is not None

    def fits(self, uri: str) -> bool:
        """Return whether the template can expand to a URI: its literals stand there in order, without overlap."""
        if len(self.literals) == 1:
            return uri == self.head
        last = self.literals[-1]
        if not uri.startswith(self.head) or not uri.endswith(last):
            return False
        place, end = len(self.head), len(uri) - len(last)
        for literal in self.literals[1:-1]:
            # The leftmost place leaves the most room for the literals behind it.
            place = uri.find(literal, place, end)
            if place < 0:
                return False
            place += len(literal)
        return place <= end


def parse_template(text: str) -> UriTemplate | None:
    """Return a template to match with, None for one that is too long or too rich."""
    if len(text) > _MOST_CHARACTERS or text.count("{") > MOST_EXPRESSIONS:
        return None
    return UriTemplate(text, tuple(_expression.split(text)))


MOST_URIS: Final = 10_000
MOST_TEMPLATES: Final = 200
_MOST_LINKS: Final = 1_000
"""What is remembered of one server. What it lists beyond that counts as unlisted."""

_SHARED_SCHEMES: Final = frozenset(
    {"http", "https", "file", "git", "ui", "data", "urn", "ftp", "ftps", "ssh", "mailto"}
)
"""Schemes that say nothing of the server. The others are taken to be the server's own."""
_uri = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/?#]*))?(/[^/?#]*(?=/))?")


class ResourceOwners:
    """Decides which server a resource URI belongs to, from what each server has listed."""

    def __init__(self) -> None:
        self._listed: dict[str, dict[str, None]] = {}
        self._templates: dict[str, tuple[UriTemplate, ...]] = {}
        self._places: dict[str, tuple[UriTemplate, ...]] = {}
        """By server: those of its templates that name the place of what fits them."""
        self._linked: dict[str, dict[str, None]] = {}
        """By server: URIs that the results of its tools name."""
        self._roots: dict[str, dict[str, frozenset[str]]] = {}
        """By server and list: the beginnings of URIs that are its own."""
        self._schemes: dict[str, dict[str, frozenset[str]]] = {}
        """By server and list: the schemes that it uses."""
        self._held: dict[str, dict[str, str]] = {}
        """By profile: which server a URI was listed by first."""

    # -- what servers list and name

    def note_resources(self, server: str, uris: Iterable[str]) -> Steps[None]:
        """Record the resources that a server lists now, in steps."""
        known: dict[str, None] = {}
        for uri in uris:
            yield
            if len(known) >= MOST_URIS:
                break
            if len(uri) <= _MOST_CHARACTERS:
                known[uri] = None
        roots: set[str] = set()
        for uri in known:
            yield
            roots.add(_root(uri))
        self._listed[server] = known
        self._note_roots(server, "resources", roots, set(map(_scheme_of, known)))

    def note_templates(self, server: str, texts: Iterable[str]) -> Steps[None]:
        """Record the templates that a server lists now, in steps."""
        found: list[UriTemplate] = []
        for text in texts:
            yield
            if len(found) >= MOST_TEMPLATES:
                break
            if (template := parse_template(text)) is not None and template.names_scheme:
                found.append(template)
        self._templates[server] = tuple(found)
        self._places[server] = tuple(each for each in found if _names_place(each.head))
        schemes = {_scheme_of(each.head) for each in found}
        # An opaque beginning (`note:`) is not a place: another server may use the scheme as well.
        roots = {_root(each.head, whole=False) for each in self._places[server]} - {f"{each}:" for each in schemes}
        self._note_roots(server, "templates", roots, schemes)

    def _note_roots(self, server: str, listed: str, roots: set[str], schemes: set[str]) -> None:
        self._roots.setdefault(server, {})[listed] = frozenset(roots - {""})
        self._schemes.setdefault(server, {})[listed] = frozenset(schemes - _SHARED_SCHEMES)

    def note_links(self, server: str, uris: Iterable[str]) -> None:
        """Record URIs that a server names in a result; they need not be in its list (specification: tools)."""
        linked = self._linked.setdefault(server, {})
        for uri in uris:
            if len(uri) <= _MOST_CHARACTERS:
                linked.pop(uri, None)
                linked[uri] = None
        while len(linked) > _MOST_LINKS:
            del linked[next(iter(linked))]

    def hold(self, profile: str, owned: Iterable[tuple[str, str]]) -> None:
        """Record which server owns each URI that a profile's clients were shown. No other server can take such a URI by
        listing it later."""
        held = self._held.setdefault(profile, {})
        for uri, server in owned:
            if uri in held or len(held) < MOST_URIS:
                held[uri] = server

    # -- whose a resource is

    def is_held(self, uri: str, profile: str, servers: Sequence[str]) -> bool:
        """Return whether a profile's clients were shown a URI as one of these servers', which still lists it."""
        held = self._held.get(profile, {}).get(uri)
        return held in servers and uri in self._listed.get(held or "", ())

    def lists(self, uri: str, profile: str, servers: Sequence[str], naming: Sequence[str] = ()) -> str | None:
        """Return which of these servers, in config order, owns a URI because it lists it, or because it is a page that
        its tools name (`naming`)."""
        listing = [server for server in servers if uri in self._listed.get(server, ())]
        if naming and is_page(uri):
            return self._claims(uri, servers, naming, listing)
        held = self._held.get(profile, {}).get(uri)
        return held if held in listing else next(iter(listing), None)

    def _claims(self, uri: str, servers: Sequence[str], naming: Sequence[str], listing: Sequence[str]) -> str | None:
        """Return whose a page is. If one server names it and only others list it, it is nobody's: one of them wants to
        be shown in place of the other."""
        claiming = [server for server in servers if server in naming or server in listing]
        if (named := named_in(uri, claiming)) is not None:
            return named
        if listing and not set(listing) & set(naming):
            return None
        return next((server for server in servers if server in naming), None)

    def links(self, server: str, uri: str) -> bool:
        """Return whether a result of a server has named a URI."""
        return uri in self._linked.get(server, ())

    def owner(self, uri: str, profile: str, servers: Sequence[str], naming: Sequence[str] = ()) -> str | None:
        """Return which of these servers, in config order, a URI belongs to. `naming`: those whose tools have it as a
        page."""
        if (listing := self.lists(uri, profile, servers, naming)) is not None or (naming and is_page(uri)):
            return listing
        fitting = {server: fit for server in servers if (fit := self._fit(server, uri)) is not None}
        links = [each for each in servers if each in naming or self.links(each, uri)]
        root = _root(uri)
        of_root = next((server for server in servers if root and self._has_root(server, root)), None)
        if of_root is not None:
            return self._within(of_root, root, fitting, links)
        named = [server for server in links if _authority(uri) == server.lower()]
        if found := [*named, *links, *fitting]:
            return found[0]
        scheme = _scheme_of(uri)
        own = [server for server in servers if self._uses_scheme(server, scheme)]
        if len(own) == 1 and not any(scheme == each.lower() for each in servers if each not in own):
            return own[0]
        return servers[0] if len(servers) == 1 and not self._is_known_elsewhere(uri, servers[0]) else None

    def _has_root(self, server: str, root: str) -> bool:
        return any(root in roots for roots in self._roots.get(server, {}).values())

    def _uses_scheme(self, server: str, scheme: str) -> bool:
        """Return whether a server lists anything of a scheme that is not one that servers share."""
        return any(scheme in schemes for schemes in self._schemes.get(server, {}).values())

    def _is_known_elsewhere(self, uri: str, server: str) -> bool:
        """Return whether what another server lists says that a URI is its own, whatever profile that server is in."""
        others = [each for each in self._listed.keys() | self._templates.keys() if each != server]
        root = _root(uri)
        return any(
            uri in self._listed.get(each, ()) or self._has_root(each, root) or self._fit(each, uri) is not None
            for each in others
        )

    def _within(self, owner: str, root: str, fitting: dict[str, int], links: Sequence[str]) -> str:
        """Return whose an unlisted URI is under a beginning that belongs to a server. Another one needs to have named
        the URI, or to have a template that says more than this beginning."""
        if owner in fitting or owner in links:
            return owner
        deeper = [server for server, fit in fitting.items() if fit > len(root)]
        return next(iter(links), None) or max(deeper, key=fitting.__getitem__, default=owner)

    def _fit(self, server: str, uri: str) -> int | None:
        """Return how long a literal beginning the URI shares with a template of a server; None if it fits none."""
        fits = [each for each in self._places.get(server, ()) if each.fits(uri)]
        return max((len(each.head) for each in fits), default=None)

    def template_owner(self, text: str, servers: Sequence[str]) -> str | None:
        """Return which of these servers, in config order, lists this template. One that names no scheme is nobody's."""
        for server in servers:
            if any(each.text == text for each in self._templates.get(server, ())):
                return server
        return None


def _root(uri: str, *, whole: bool = True) -> str:
    """Return the beginning of a URI that says whose it is: scheme and authority; without an authority also the first
    folder. `whole`: the URI does not go on; else only what is complete counts. "" if nothing says whose it is."""
    found = _uri.match(uri)
    if found is None:
        return ""
    scheme, authority, folder = found[1].lower(), found[2], found[3]
    if authority:
        ends = found.end(2)
        if not whole and ends == len(uri):
            return ""
        return f"{scheme}://{authority.rpartition('@')[2].lower()}/"
    if authority is None:
        return "" if scheme in _SHARED_SCHEMES else f"{scheme}:"
    return f"{scheme}://{folder}/" if folder else ""


def _names_place(head: str) -> bool:
    """Return whether the beginning of a template says more than a scheme: a whole authority, the first folder where
    there is none, or something behind the colon of an opaque URI."""
    found = _uri.match(head)
    if found is None:
        return False
    return bool(head[found.end(1) + 1 :].strip("/")) if found[2] is None else _root(head, whole=False) != ""


def _authority(uri: str) -> str:
    found = _uri.match(uri)
    return (found[2] or "").lower() if found is not None else ""


def _scheme_of(uri: str) -> str:
    return uri.partition(":")[0].lower()
