"""Lists, gets and reads the skills of all upstreams and the user's own (SEP-2640) as if they were one server's.

What a server lists is pinned as its tools are. A skill is pinned with the digests of its files, so what is read of it
is compared with them, whoever reads it and by whichever URI: a changed file is refused until its skill is approved.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec import Struct

from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.names import plain_part
from foretool.server.catalog.skill_folders import OWN, OwnSkill, Reader, SkillFolders, read_file
from foretool.server.clients.exchange import Caller, Exchange
from foretool.server.config.loader import Profile
from foretool.server.methods.forwarder import Forwarder
from foretool.server.methods.merged_lists import MergedLists
from foretool.server.protocol import jsonrpc, skills
from foretool.server.protocol.jsonrpc import Message, Raw, RpcError
from foretool.server.protocol.lists import SKILLS
from foretool.server.protocol.skills import Mark, Skill
from foretool.server.trust.approvals import why_held
from foretool.server.trust.gatekeeper import Gatekeeper
from foretool.server.upstreams.connection import Reply
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.records import Era
from foretool.storage.steps import Steps

DECLARED: Final[dict[str, Any]] = {"directoryRead": True}
"""What we say of the extension."""
OnText = Callable[[Exchange, str, str], None]
"""Takes the exchange to answer, the text of a file, and why there is none."""


class SkillOffer(Struct, frozen=True):
    """A skill that a client may use."""

    uri: str
    """As clients call it."""
    name: str
    description: str
    server: str
    """"" for the user's own."""
    folder: str = ""
    """Where the user's own is."""


class SkillIndex:
    """Knows which skills the servers have, and where each URI leads."""

    def __init__(self, upstreams: UpstreamRegistry, catalog: Catalog) -> None:
        self._upstreams = upstreams
        self._catalog = catalog
        self.served: dict[str, dict[str, Skill]] = {}
        """By server and own URI: what may be served."""

    def take_in(self, upstream: Upstream, served: Mapping[str, Raw]) -> Steps[None]:
        """Record the skills of an upstream that may be served."""
        found: dict[str, Skill] = {}
        for uri, entry in served.items():
            yield
            found[uri] = skills.read_skill(entry)
        self.served[upstream.name] = found

    def declaring(self, profile: Profile) -> list[Upstream]:
        return self._upstreams.with_capability(skills.EXTENSION, profile)

    def all(self, profile: Profile) -> list[tuple[Upstream, str, Skill]]:
        """Return the skills of a profile's servers that may be shown, each with the prefix of its server."""
        found: dict[str, tuple[Upstream, str, Skill]] = {}
        for upstream in self.declaring(profile):
            prefix = self.prefix(upstream.name)
            for each in self.served.get(upstream.name, {}).values():
                if prefix or not self.poses(upstream.name, each.uri):
                    found.setdefault(skills.expose(each.uri, prefix), (upstream, prefix, each))
        return list(found.values())

    def prefix(self, upstream: str) -> str:
        return plain_part(self._catalog.namespaces.prefix(upstream))

    def poses(self, upstream: str, uri: str) -> bool:
        """Return whether a URI that a server without a prefix lists looks like one of another server or of foretool."""
        if uri.startswith(OWN):
            return True
        found = self._catalog.namespaces.split(f"{skills.first_part(uri)}/x")
        return found is not None and found[0] != upstream and found[1] == "x"

    def find(self, uri: str, profile: Profile) -> tuple[Upstream, str] | None:
        """Return the server of a URI as clients call it, and the URI there."""
        bare: list[Upstream] = []
        for upstream in self.declaring(profile):
            if not (prefix := self.prefix(upstream.name)):
                bare.append(upstream)
            elif (own := skills.restore(uri, prefix)) is not None:
                return upstream, own
        bare = [each for each in bare if not self.poses(each.name, uri)]
        having = [each for each in bare if any(one.has(uri) for one in self.served.get(each.name, {}).values())]
        return next(((each, uri) for each in (*having, *(bare if len(bare) == 1 else ()))), None)

    def held(self, upstream: Upstream) -> list[str]:
        """Return the URIs of a server's skills that are listed and not approved, as the server names them."""
        wanted = upstream.lists[SKILLS]
        listed = (jsonrpc.member(each, "uri") for each in wanted.listed)
        return [uri for uri in listed if uri is not None and uri not in (wanted.served or {})]


class Skills:
    """Finds the upstream of each skill and checks what is read of it."""

    def __init__(
        self, upstreams: UpstreamRegistry, lists: MergedLists, forwarder: Forwarder, catalog: Catalog,
        gatekeeper: Gatekeeper, folders: SkillFolders,
    ) -> None:  # fmt: skip
        self._upstreams = upstreams
        self._lists = lists
        self._forwarder = forwarder
        self._gatekeeper = gatekeeper
        self._folders = folders
        self.index = SkillIndex(upstreams, catalog)

    def handlers(self, era: Era) -> dict[str, Any]:
        return {"skills/list": self.list_all, "skills/get": self.get, "resources/directory/read": self.read_folder}

    # -- what there is

    def may_have_some(self, client: Caller) -> bool:
        """Return whether a client may be told that there are skills."""
        return bool(self.index.declaring(client.profile)) or self._folders.are_there(client)

    def when_known(self, exchange: Exchange, go: Callable[[], None]) -> None:
        """Call `go` once the skills of the servers that are up are known, as far as they come soon."""
        declaring = self.index.declaring(exchange.client.profile)
        unknown = [each for each in declaring if each.is_up and each.lists[SKILLS].served is None]
        if unknown:
            self._lists.when_known(exchange, unknown, (SKILLS,), go)
        else:
            go()

    def offers(self, client: Reader, profile: Profile) -> list[SkillOffer]:
        """Return the skills that a client may use, as far as they are known: the user's own, then those of servers."""
        own = [
            SkillOffer(each.uri, each.name, each.description, "", str(each.folder)) for each in self._folders.of(client)
        ]
        for upstream in self.index.declaring(profile):
            if upstream.is_up and upstream.lists[SKILLS].served is None:
                upstream.want_list(SKILLS, "modern")
        return own + [
            SkillOffer(skills.expose(each.uri, prefix), each.name, each.description, upstream.name)
            for upstream, prefix, each in self.index.all(profile)
        ]

    def further_files(self, offer: SkillOffer, client: Reader, profile: Profile) -> list[str]:
        """Return the URIs of the files of a skill besides its `SKILL.md`, as far as they are known."""
        if not offer.server:
            own = self._find_own(offer.uri, client)
            found = list(self._folders.files(own)) if own is not None else []
        else:
            found = [
                skills.expose(file, prefix)
                for _, prefix, each in self.index.all(profile)
                if skills.expose(each.uri, prefix) == offer.uri
                for file in each.files or ()
            ]
        return [uri for uri in found if uri != offer.uri]

    def list_all(self, exchange: Exchange) -> None:
        self._lists.answer(exchange, SKILLS, self._merge)

    def _merge(self, exchange: Exchange, upstreams: Sequence[Upstream]) -> Steps[list[Raw]]:
        merged: list[Raw] = []
        for upstream, prefix, each in self.index.all(exchange.client.profile):
            yield
            merged.append(skills.expose_entry((upstream.lists[SKILLS].served or {})[each.uri], prefix))
        for own in self._folders.of(exchange.client):
            yield
            if (entry := self._folders.entry(own)) is not None:
                merged.append(entry)
        return merged

    # -- one skill

    def _find_own(self, uri: str, client: Reader) -> OwnSkill | None:
        return next((each for each in self._folders.of(client) if _lies_in(uri, skills.root_of(each.uri))), None)

    def get(self, exchange: Exchange) -> None:
        uri = _uri_of(exchange)
        exchange.own_session.read_skill(uri)
        unknown = RpcError(jsonrpc.INVALID_PARAMS, f"No skill is served at {uri}")
        if uri.startswith(OWN):
            own = self._find_own(uri, exchange.client)
            entry = self._folders.entry(own) if own is not None and own.uri == uri else None
            if entry is None:
                raise unknown
            exchange.own_result({"skill": entry})
            return
        if (found := self.index.find(uri, exchange.client.profile)) is None:
            raise unknown
        self._when_listed(exchange, found[0], partial(self._get, exchange, *found))

    def _get(self, exchange: Exchange, upstream: Upstream, own: str) -> None:
        served = upstream.lists[SKILLS].served or {}
        if own in served:
            exchange.own_result({"skill": skills.expose_entry(served[own], self.index.prefix(upstream.name))})
            return
        if own in self.index.held(upstream):
            raise RpcError(jsonrpc.INVALID_PARAMS, why_held(upstream.name))

        def on_reply(at: Exchange, reply: Reply) -> None:
            if not isinstance(reply, Message) or not isinstance(reply.result, Raw):
                self._forwarder.answer(at, upstream, reply)
                return
            entry = jsonrpc.fields(reply.result).get("skill", Raw(b"null"))
            if skills.read_skill(entry).uri != own:
                raise ValueError("it describes another skill")
            if not self._gatekeeper.admit_unlisted(upstream.name, SKILLS, own, entry):
                at.error(jsonrpc.INVALID_PARAMS, why_held(upstream.name))
                return
            at.own_result({"skill": skills.expose_entry(entry, self.index.prefix(upstream.name))})

        self._forwarder.forward(exchange, upstream, {**exchange.params, "uri": jsonrpc.raw(own)}, on_reply)

    def _when_listed(self, exchange: Exchange, upstream: Upstream, go: Callable[[], None]) -> None:
        self._lists.when_known(exchange, [upstream], (SKILLS,), go)

    # -- folders

    def read_folder(self, exchange: Exchange) -> None:
        """Answer `resources/directory/read` from what is approved of a skill, or ask its server if it is dynamic."""
        uri = _uri_of(exchange)
        if jsonrpc.text(exchange.params.get("cursor")) is not None:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"{exchange.method}: unknown cursor; each folder is one page")
        if uri.startswith(OWN):
            own = self._find_own(uri, exchange.client)
            files = self._folders.files(own) if own is not None else ()
            self._answer_folder(exchange, uri, skills.children(uri, files))
        elif (found := self.index.find(uri, exchange.client.profile)) is not None:
            self._when_listed(exchange, found[0], partial(self._read_folder, exchange, uri, *found))
        else:
            self._answer_folder(exchange, uri, [])

    def _read_folder(self, exchange: Exchange, uri: str, upstream: Upstream, own: str) -> None:
        within = [each for each in self.index.served.get(upstream.name, {}).values() if each.has(own)]
        prefix, files = self.index.prefix(upstream.name), [file for each in within for file in each.files or ()]
        if files or not within:
            self._answer_folder(exchange, uri, skills.children(uri, [skills.expose(each, prefix) for each in files]))
            return
        declared = (self._upstreams.capabilities(upstream.name) or {}).get("extensions", {}).get(skills.EXTENSION)
        if not isinstance(declared, dict) or declared.get("directoryRead") is not True:
            self._answer_folder(exchange, uri, [])
            return
        params = {**exchange.params, "uri": jsonrpc.raw(own)}
        self._forwarder.forward(exchange, upstream, params, partial(self._pass_back, upstream, "resources"))

    def _answer_folder(self, exchange: Exchange, uri: str, found: list[dict[str, str]]) -> None:
        if not found:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"{uri} is not a folder of a skill")
        exchange.own_result({"resources": found})

    def _pass_back(self, upstream: Upstream, key: str, exchange: Exchange, reply: Reply) -> None:
        """Answer with a server's reply, its URIs as clients call them."""
        if isinstance(reply, Message) and isinstance(reply.result, Raw):
            reply.result = skills.expose_uris(reply.result, key, self.index.prefix(upstream.name))
        self._forwarder.answer(exchange, upstream, reply)

    # -- files

    def reads(self, exchange: Exchange, uri: str) -> bool:
        """Answer `resources/read` of a URI that only foretool gives out, such as a file of the user's own skills;
        return whether it is one."""
        exchange.own_session.read_skill(uri)
        if uri.startswith(OWN):
            data = self._read_own(exchange.client, uri)
            try:
                body: dict[str, Any] = {"text": data.decode()}
            except UnicodeDecodeError:
                body = {"blob": base64.b64encode(data).decode()}
            exchange.own_result({"contents": [{"uri": uri, "mimeType": skills.type_of(uri), **body}]})
            return True
        found = self.index.find(uri, exchange.client.profile)
        if found is None or found[1] == uri:
            return False
        self.read_at(exchange, *found)
        return True

    def read_at(self, exchange: Exchange, upstream: Upstream, own: str) -> None:
        """Read a resource of a server. What belongs to one of its skills has to be as it was approved."""
        params = {**exchange.params, "uri": jsonrpc.raw(own)}
        if upstream not in self.index.declaring(exchange.client.profile):
            self._forwarder.pass_on(exchange, upstream, params)
            return
        is_mapped = own != jsonrpc.text(exchange.params.get("uri"))

        def go() -> None:
            marks = self._marks(upstream, own)

            def on_reply(at: Exchange, reply: Reply) -> None:
                if problem := self._find_mismatch(upstream, own, marks, reply):
                    at.error(jsonrpc.INVALID_PARAMS, problem)
                elif is_mapped:
                    self._pass_back(upstream, "contents", at, reply)
                else:
                    self._forwarder.answer(at, upstream, reply)

            self._forwarder.forward(exchange, upstream, params, on_reply)

        self._when_listed(exchange, upstream, go)

    def read_text(self, exchange: Exchange, uri: str, go: OnText) -> None:
        """Read a file of a skill for a model, and call `go`."""
        exchange.own_session.read_skill(uri)
        if uri.startswith(OWN):
            try:
                go(exchange, self._read_own(exchange.client, uri).decode(), "")
            except UnicodeDecodeError:
                go(exchange, "", "it is not a text")
            except RpcError as error:
                go(exchange, "", str(error))
            return
        found = self.index.find(uri, exchange.client.profile)
        if found is None:
            go(exchange, "", "no skill has this file")
            return
        upstream, own = found

        def ask() -> None:
            try:
                marks = self._marks(upstream, own)
            except RpcError as error:
                go(exchange, "", str(error))
                return

            def on_reply(at: Exchange, reply: Reply) -> None:
                problem = self._find_mismatch(upstream, own, marks, reply)
                text = _text_of(reply) if not problem else None
                go(at, text or "", problem or ("" if text is not None else _reason(reply)))

            params = {"uri": jsonrpc.raw(own)}
            self._forwarder.forward(exchange, upstream, params, on_reply, method="resources/read")

        self._when_listed(exchange, upstream, ask)

    def _read_own(self, client: Reader, uri: str) -> bytes:
        """Return what a file of the user's own skills holds. Raises `RpcError`."""
        skill = self._find_own(uri, client)
        try:
            path = self._folders.files(skill).get(uri) if skill is not None else None
            if skill is None or path is None:
                raise RpcError(jsonrpc.INVALID_PARAMS, f"Resource not found: {uri}")
            return read_file(skill, path)
        except OSError as error:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"{uri} cannot be read: {error}") from None

    def _marks(self, upstream: Upstream, own: str) -> set[Mark]:
        """Return what a file may be, {} for what belongs to no skill whose files are known. Raises `RpcError` for what
        is held."""
        within = [each for each in self.index.served.get(upstream.name, {}).values() if each.has(own)]
        marks = {each.files[own] for each in within if each.files is not None and own in each.files}
        if not marks and any(each.files is not None for each in within):
            raise RpcError(jsonrpc.INVALID_PARAMS, f"{own} is not one of the files of its skill that were approved")
        if not within and any(_lies_in(own, skills.root_of(each)) for each in self.index.held(upstream)):
            raise RpcError(jsonrpc.INVALID_PARAMS, why_held(upstream.name))
        return marks

    def _find_mismatch(self, upstream: Upstream, own: str, marks: set[Mark], reply: Reply) -> str:
        """Say what is wrong with what a server sent for a file, "" if it is one of `marks` or there are none."""
        if not marks or not isinstance(reply, Message) or not isinstance(reply.result, Raw):
            return ""
        contents = jsonrpc.fields(reply.result).get("contents")
        if contents is None or _mark_of(contents) in marks:
            return ""
        upstream.want_list(SKILLS, upstream.lines.spoken_era() or "modern")  # so that a review shows what it is now
        return f"{own} is not what was approved of its skill; {why_held(upstream.name)}"


def _uri_of(exchange: Exchange) -> str:
    uri = jsonrpc.text(exchange.params.get("uri"))
    if not uri:
        raise RpcError(jsonrpc.INVALID_PARAMS, f"{exchange.method}: uri is missing")
    return uri


def _lies_in(uri: str, root: str) -> bool:
    return f"{uri}/".startswith(f"{root}/")


def _only(contents: Raw) -> dict[str, Any]:
    """Return the only object of a list, {} if it is not the only one."""
    listed = jsonrpc.decode_value(contents)
    return listed[0] if isinstance(listed, list) and len(listed) == 1 and isinstance(listed[0], dict) else {}


def _mark_of(contents: Raw) -> Mark | None:
    """Return the digest and the size of what was read; None for what has none, or is two things at once, of which
    clients may take either."""
    only = _only(contents)
    if "text" in only and "blob" in only:
        return None
    try:
        if isinstance(text := only.get("text"), str):
            return skills.mark_of(text.encode())
        return skills.mark_of(base64.b64decode(only["blob"], validate=True))
    except (KeyError, TypeError, UnicodeEncodeError, binascii.Error):
        return None


def _text_of(reply: Reply) -> str | None:
    if not isinstance(reply, Message) or not isinstance(reply.result, Raw):
        return None
    text = _only(jsonrpc.fields(reply.result).get("contents", Raw(b"[]"))).get("text")
    return text if isinstance(text, str) else None


def _reason(reply: Reply) -> str:
    if not isinstance(reply, Message):
        return reply.reason
    return jsonrpc.error_of(reply.error)[1] if isinstance(reply.error, Raw) else "it is not a text"
