"""The instruction corpus: what upstreams say of themselves, their prompts, and the user's own files, in fragments.

Nothing is read or asked before the first search. From then on files are checked at most once a second. Upstreams that
are up are asked for their prompts in the background, and the next search uses their answers. A fragment carries its
source wherever it is shown. Only the user's files can be policy or safety.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from foretool.retrieval.fragments import Fragment, FragmentIndex, Hit, fit_fragment, fragments, is_overlay, unique
from foretool.server.catalog import names
from foretool.server.catalog.catalog import Catalog
from foretool.server.config.loader import LiveConfig, Profile
from foretool.server.discovery.answer_shape import SHARE
from foretool.server.discovery.instruction_files import InstructionFiles
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.protocol.lists import PROMPTS
from foretool.server.trust.gatekeeper import Gatekeeper
from foretool.server.trust.text import clean
from foretool.server.upstreams.connection import Lost, Reply
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.steps import Steps

_MOST_SAID: Final = 32 * 1024
"""At most so many characters of one text of a server are read."""
_MOST_READ: Final = 256 * 1024
"""Bytes of an answer to `prompts/get` that is read, in about a millisecond."""
_MOST_PROMPTS: Final = 50
"""At most so many prompts of one upstream are read."""
_APPLIES: Final = 0.35
"""A fragment of the user applies if it has at least this share of the query's words."""
_FOREIGN_APPLIES: Final = 0.5
"""The same for fragments of a server. They were not written for this user, and one word of two is chance."""
_ITS_SERVER: Final = 0.5
"""A server's own instructions are at least this relevant if one of its tools is the best match."""


class _Held(Struct, frozen=True):
    """The fragments of a profile, valid while the version stays the same."""

    version: tuple[int, int, int]
    fragments: tuple[Fragment, ...]
    index: FragmentIndex
    """All of them except the overlay."""


class Instructions:
    def __init__(
        self, config: LiveConfig, upstreams: UpstreamRegistry, catalog: Catalog, gatekeeper: Gatekeeper
    ) -> None:
        self._config = config
        self._upstreams = upstreams
        self._catalog = catalog
        self._gatekeeper = gatekeeper
        self._files = InstructionFiles(config)
        self._changes = 0
        """How often the texts of upstreams have changed."""
        self._prompts: dict[str, dict[str, tuple[Fragment, ...]]] = {}
        """Prompts by upstream and by their name there."""
        self._asked: set[str] = set()
        self._awaited: set[str] = set()
        """Upstreams whose prompts were read, or are to be, and those of them whose list is not known yet."""
        self._counts: dict[str, int] = {}
        """Counted tokens by digest; the others are estimated."""
        self._texts: dict[str, tuple[str, tuple[Fragment, ...]]] = {}
        """By upstream: its instructions, and the fragments of them."""
        self._by_profile: dict[str, _Held] = {}

    @property
    def version(self) -> int:
        """A number that goes up with every change of a fragment."""
        return self._changes + self._files.version

    # -- fragments

    def of(self, profile: Profile) -> tuple[Fragment, ...]:
        """Return every fragment that a profile's clients may be shown, each text once."""
        return self._held(profile).fragments

    def _held(self, profile: Profile) -> _Held:
        self._files.look()
        known = self._by_profile.get(profile.name)
        if known is None or known.version != self._version():
            found = tuple(self._gathered(profile))
            index = FragmentIndex([each for each in found if not is_overlay(each)])
            # `_gathered` may have cut new fragments, which moves the version.
            known = self._by_profile[profile.name] = _Held(self._version(), found, index)
        return known

    def _version(self) -> tuple[int, int, int]:
        """Return the version of everything that fragments are made of."""
        return (self._catalog.version, self.version, len(self._counts))

    def _gathered(self, profile: Profile) -> list[Fragment]:
        found = self._files.fragments()
        for name in (upstream.name for upstream in self._upstreams.admitted(profile)):
            found += self._words_of(name)
            found += (each for prompt in self._prompts.get(name, {}).values() for each in prompt)
        return [self._counted(each) for each in unique(found)]

    def overlay(self, profile: Profile) -> list[Fragment]:
        """Return the user's own safety texts, which are always shown."""
        return [each for each in self.of(profile) if is_overlay(each)]

    def find(self, lines: Sequence[str], profile: Profile, servers: Sequence[str] | None = ()) -> list[Hit]:
        """Return the fragments that apply to a query, most relevant first, without the overlay. `servers`: those whose
        tools are shown for it, that of the best tool first; what this one says of itself always applies, and stands
        before what the others say. A server none of whose tools is shown says nothing; one without tools may. None: no
        server says anything, because nobody is sure that one has the tool."""
        self.ask()
        index = self._held(profile).index
        found = [hit for hit in index.find(lines) if self._may_speak(hit.fragment.upstream, servers)]
        least = {True: _FOREIGN_APPLIES, False: _APPLIES}
        hits = {hit.fragment.id: hit for hit in found if hit.relevance >= least[bool(hit.fragment.upstream)]}
        server = servers[0] if servers else ""
        said = (
            each for each in (*(hit.fragment for hit in found), *index.fragments) if each.source == f"server {server}"
        )
        own = next(said, None)
        if own is not None and (own.id not in hits or hits[own.id].relevance < _ITS_SERVER):
            hits[own.id] = Hit(own, _ITS_SERVER)
        return sorted(hits.values(), key=lambda hit: (hit.fragment.upstream not in ("", server), -hit.relevance))

    def _may_speak(self, upstream: str, servers: Sequence[str] | None) -> bool:
        return not upstream or (servers is not None and (upstream in servers or not self._catalog.of(upstream)))

    def beside(
        self, lines: Sequence[str], profile: Profile, servers: Sequence[str] | None, spent: int = 0,
        told_servers: Collection[str] = (),
    ) -> list[Fragment]:  # fmt: skip
        """Return the fragments that an answer of `discover_tools` shows beside its tools: the user's safety texts, and
        those that apply, within their share of the answer, of which so many tokens are spent. `servers`: those of the
        tools that it describes, best first; None: no server may be quoted. `told_servers`: those whose words the client
        was given when it connected, which are not repeated.

        Safety texts are always shown whole. Another fragment that is too long is cut.
        """
        hits = self.find(lines, profile, servers)
        shown = self.overlay(profile)
        budget = self._config.settings.answer_tokens // SHARE - spent - sum(each.tokens for each in shown)
        for fragment in (hit.fragment for hit in hits):
            if fragment.upstream in told_servers and fragment.source == f"server {fragment.upstream}":
                continue
            if (part := fit_fragment(fragment, budget)) is not None:
                shown.append(part)
                budget -= part.tokens
        return shown

    def _words_of(self, upstream: str) -> tuple[Fragment, ...]:
        said = self._catalog.texts.instructions(upstream)[:_MOST_SAID]
        known = self._texts.get(upstream)
        if known is None or known[0] != said:
            found = tuple(fragments(said, f"server {upstream}", "guidance", upstream))
            known = self._texts[upstream] = (said, found)
            self._changes += 1
        return known[1]

    # -- tokens

    def uncounted(self) -> dict[str, str]:
        """Return the texts of fragments whose tokens are only estimated, by digest."""
        parts = self._files.fragments()
        parts += (each for _, words in self._texts.values() for each in words)
        parts += (each for prompts in self._prompts.values() for prompt in prompts.values() for each in prompt)
        return {each.digest: each.text for each in parts if each.digest not in self._counts}

    def count(self, tokens: Mapping[str, int]) -> None:
        """Record token counts by digest."""
        self._counts.update(tokens)

    def _counted(self, fragment: Fragment) -> Fragment:
        tokens = self._counts.get(fragment.digest)
        return fragment if tokens is None or tokens == fragment.tokens else replace(fragment, tokens=tokens)

    # -- the prompts of upstreams

    def ask(self) -> None:
        """Start to read the prompts of running upstreams that were not read yet, after asking for lists that are not
        known. The next search uses the result."""
        for upstream in self._upstreams:
            if upstream.name in self._asked or not upstream.is_up:
                continue
            if "prompts" not in (self._upstreams.capabilities(upstream.name) or {}):
                continue
            self._asked.add(upstream.name)
            served = upstream.lists[PROMPTS].served if PROMPTS in upstream.lists else {}
            if served is None:
                self._awaited.add(upstream.name)
                upstream.want_list(PROMPTS, "modern")
            else:
                self._read(upstream, served)

    def prompts_changed(self, upstream: Upstream) -> None:
        """Read the prompts of an upstream again at the next search: they may have changed."""
        self._asked.discard(upstream.name)

    def take_in(self, upstream: Upstream, served: Mapping[str, Raw]) -> Steps[None]:
        """Record the prompts of an upstream that are approved to be quoted."""
        yield
        if upstream.name in self._awaited:
            self._awaited.discard(upstream.name)
            self._read(upstream, served)
        else:
            self.prompts_changed(upstream)

    def _read(self, upstream: Upstream, served: Mapping[str, Raw]) -> None:
        found: dict[str, tuple[Fragment, ...]] = {}
        for name, listed in islice(served.items(), _MOST_PROMPTS):
            if self._catalog.namespaces.refusal(upstream.name, name) is not None:
                continue
            prompt = jsonrpc.decode_value(listed)
            exposed = names.plain_name(self._catalog.namespaces.prefix(upstream.name), name)
            found[name] = tuple(
                fragments(
                    clean(_described(exposed, prompt))[:_MOST_SAID], f"prompt {exposed}", "guidance", upstream.name
                )
            )
            if not any(_arguments(prompt, required=True)):
                upstream.ask("prompts/get", {"name": name}, partial(self._got, upstream, name, exposed))
        self._prompts[upstream.name] = found
        self._changes += 1

    def _got(self, upstream: Upstream, name: str, exposed: str, reply: Reply) -> None:
        contents = (message.get("content") for message in _objects(reply, "messages"))
        texts = [each["text"] for each in contents if isinstance(each, dict) and isinstance(each.get("text"), str)]
        text = clean("\n\n".join(texts)[:_MOST_SAID])
        text = self._gatekeeper.admit_prompt_text(upstream.name, name, text)
        if text.strip() and name in self._prompts.get(upstream.name, {}):
            said = fragments(text, f"prompt {exposed}", "guidance", upstream.name)
            self._prompts[upstream.name][name] = tuple(said)
            self._changes += 1


def _objects(reply: Reply, key: str) -> list[dict[str, Any]]:
    """Return the objects of a list in a result; [] for anything else, and for what takes long to read."""
    if isinstance(reply, Lost) or not isinstance(reply.result, Raw) or len(reply.result) > _MOST_READ:
        return []
    try:
        listed = jsonrpc.decode_value(jsonrpc.fields(reply.result).get(key, Raw(b"[]")))
    except ValueError:
        return []
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _arguments(prompt: Mapping[str, Any], *, required: bool) -> Iterator[str]:
    listed = prompt.get("arguments")
    for argument in listed if isinstance(listed, list) else ():
        if isinstance(argument, dict) and (not required or argument.get("required") is True):
            yield str(argument.get("name"))


def _described(exposed: str, prompt: Mapping[str, Any]) -> str:
    about = " ".join(str(prompt.get(key) or "") for key in ("title", "description")).strip()
    wanted = ", ".join(_arguments(prompt, required=False))
    return f"Prompt {exposed}({wanted}): {about or 'no description'}"
