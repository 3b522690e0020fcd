"""The instruction corpus: what upstreams say of themselves, their prompts, and the user's own files, in chunks.

Nothing is read or asked before somebody searches. Then files are looked at again at most once a second, and upstreams
that are up are asked for their prompts in the background: what they answer counts from the next search on. A fragment
carries its source wherever it is shown; only the user's files can be policy or safety.
"""

from __future__ import annotations

import glob
import logging
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from foretool.retrieval.fragments import (
    PRIORITIES,
    Fragment,
    Hit,
    Priority,
    Shelf,
    fitting,
    fragments,
    front_matter,
    is_overlay,
    unique,
)
from foretool.server.catalog import names
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.upstreams.connection import Lost, Reply

if TYPE_CHECKING:
    from foretool.retrieval.ranking import Query, Ranking
    from foretool.server.config.loader import Profile
    from foretool.server.proxy import Proxy
    from foretool.server.upstreams.upstream import Upstream
    from foretool.storage.records import Level, ToolId

LOOK_S: Final = 1.0
"""Files are looked at at most this often."""
MOST_FILES: Final = 200
MOST_BYTES: Final = 1024 * 1024
"""Of one file; a longer one is left out."""
MOST_SAID: Final = 32 * 1024
"""Characters of one text of a server; the rest of a longer one is not read."""
MOST_PROMPTS: Final = 50
"""Of one upstream."""
SHARE: Final = 4
"""Instructions get at most one so many-th part of an answer."""
APPLIES: Final = 0.35
"""Least share of a query that a fragment of the user's must have."""
FOREIGN_APPLIES: Final = 0.5
"""The same for what a server wrote: it was not written for this user, and one word of two is chance."""
ITS_SERVER: Final = 0.5
"""How relevant a server's own words are where one of its tools is the best match."""

log = logging.getLogger("foretool.instructions")


class _File(Struct, frozen=True):
    stamp: tuple[int, int]
    """Time of the last change in ns, bytes."""
    fragments: tuple[Fragment, ...]


class _Held(Struct, frozen=True):
    """What a profile has, as long as its version stands."""

    version: tuple[int, int, int]
    fragments: tuple[Fragment, ...]
    shelf: Shelf
    """Without the overlay."""


class Instructions:
    """See the module."""

    def __init__(self, proxy: Proxy) -> None:
        self.version = 0
        """Goes up with every change of a fragment."""
        self._proxy = proxy
        self._files: dict[Path, _File] = {}
        self._prompts: dict[str, dict[str, tuple[Fragment, ...]]] = {}
        """By upstream and the prompt's name there."""
        self._asked: set[str] = set()
        self._looked_at = -LOOK_S
        self._said: set[str] = set()
        """Problems that were logged, and stand as they did."""
        self._counts: dict[str, int] = {}
        """Tokens by digest, where they were counted."""
        self._texts: dict[str, tuple[str, tuple[Fragment, ...]]] = {}
        """By upstream, what it said and the chunks of it."""
        self._by_profile: dict[str, _Held] = {}

    # -- what there is

    def of(self, profile: Profile) -> tuple[Fragment, ...]:
        """Every fragment that a profile's clients may be shown, each text once."""
        return self._held(profile).fragments

    def _held(self, profile: Profile) -> _Held:
        self._look()
        known = self._by_profile.get(profile.name)
        if known is None or known.version != self._version():
            found = tuple(self._gathered(profile))
            shelf = Shelf([each for each in found if not is_overlay(each)])
            # Chunks that were cut on the way have moved it.
            known = self._by_profile[profile.name] = _Held(self._version(), found, shelf)
        return known

    def _version(self) -> tuple[int, int, int]:
        """Of everything that fragments are made of."""
        return (self._proxy.catalog.version, self.version, len(self._counts))

    def _gathered(self, profile: Profile) -> list[Fragment]:
        allowed = [name for name in self._proxy.upstreams if self._proxy.exposures.allowed(profile, name)]
        found = [fragment for file in self._files.values() for fragment in file.fragments]
        for name in allowed:
            found += self._words_of(name)
            found += (each for prompt in self._prompts.get(name, {}).values() for each in prompt)
        return [self._counted(each) for each in unique(found)]

    def overlay(self, profile: Profile) -> list[Fragment]:
        """The user's own safety texts, which are always on."""
        return [each for each in self.of(profile) if is_overlay(each)]

    def find(self, lines: Sequence[str], profile: Profile, best: Sequence[ToolId] = ()) -> list[Hit]:
        """Fragments that apply to a query, most relevant first, the overlay left out. `best`: the tools found for it;
        what the server of the first one says of itself applies whatever its words."""
        self.ask()
        shelf = self._held(profile).shelf
        hits = {hit.fragment.id: hit for hit in shelf.find(lines) if _applies(hit)}
        server = self._proxy.catalog.get(best[0]) if best else None
        if server is not None:
            own = next((each for each in shelf.fragments if each.source == f"server {server.upstream}"), None)
            if own is not None and (own.id not in hits or hits[own.id].relevance < ITS_SERVER):
                hits[own.id] = Hit(own, ITS_SERVER)
        return sorted(hits.values(), key=lambda hit: -hit.relevance)

    def beside(self, query: Query, ranking: Ranking, level: Level, profile: Profile) -> list[Fragment]:
        """What an answer of `discover_tools` says beside its tools, in its share of the budget."""
        best = [each.tool for each in ranking.ranked[:1]] if level != "none" else []
        hits = self.find(query.lines, profile, best)
        budget = self._proxy.settings.answer_tokens // SHARE
        return self.fitting(hits, budget, self._proxy.given(profile)) if hits else []

    def fitting(self, hits: Sequence[Hit], budget: int, given: frozenset[str] = frozenset()) -> list[Fragment]:
        """The first of them in `budget` tokens, one that is too long cut; `given`: servers whose words the client was
        given when it connected, which are not said again."""
        shown: list[Fragment] = []
        for fragment in (hit.fragment for hit in hits):
            if fragment.upstream in given and fragment.source == f"server {fragment.upstream}":
                continue
            if (part := fitting(fragment, budget)) is not None:
                shown.append(part)
                budget -= part.tokens
        return shown

    def _words_of(self, upstream: str) -> tuple[Fragment, ...]:
        said = self._proxy.catalog.instructions(upstream)[:MOST_SAID]
        known = self._texts.get(upstream)
        if known is None or known[0] != said:
            found = tuple(fragments(said, f"server {upstream}", "guidance", upstream))
            known = self._texts[upstream] = (said, found)
            self.version += 1
        return known[1]

    # -- tokens

    def uncounted(self) -> dict[str, str]:
        """Texts of fragments by digest whose tokens are estimated."""
        parts = [each for file in self._files.values() for each in file.fragments]
        parts += (each for _, words in self._texts.values() for each in words)
        parts += (each for prompts in self._prompts.values() for prompt in prompts.values() for each in prompt)
        return {each.digest: each.text for each in parts if each.digest not in self._counts}

    def count(self, tokens: Mapping[str, int]) -> None:
        """Token counts by digest."""
        self._counts.update(tokens)

    def _counted(self, fragment: Fragment) -> Fragment:
        tokens = self._counts.get(fragment.digest)
        return fragment if tokens is None or tokens == fragment.tokens else replace(fragment, tokens=tokens)

    # -- the user's files

    def _look(self) -> None:
        """Read what is new or has changed."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        problems: list[str] = []
        found = {path: self._read(path, problems) for path in self._paths(problems)}
        files = {path: file for path, file in found.items() if file is not None}
        if files != self._files:
            self._files = files
            self.version += 1
        for problem in problems:
            if problem not in self._said:
                log.warning("%s", problem)
        self._said = set(problems)

    def _paths(self, problems: list[str]) -> list[Path]:
        folder = self._proxy.config.path.absolute().parent
        found: dict[Path, None] = {}
        for pattern in self._proxy.settings.instructions:
            wanted = str(Path(pattern).expanduser())
            matched = glob.glob(wanted, root_dir=folder, recursive=True)  # noqa: PTH207 -- Path.glob refuses absolute ones
            paths = sorted(folder / each for each in matched)
            files = [path for path in paths if not path.is_dir()]
            if not files:
                problems.append(
                    f"foretool.instructions: {pattern!r} matches no file under {folder}; correct the pattern"
                )
            found |= dict.fromkeys(files)
        if len(found) > MOST_FILES:
            problems.append(
                f"foretool.instructions: {len(found)} files, only the first {MOST_FILES} are read; name fewer"
            )
        return list(found)[:MOST_FILES]

    def _read(self, path: Path, problems: list[str]) -> _File | None:
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            known = self._files.get(path)
            if known is not None and known.stamp == stamp:
                return known
            if not stat.S_ISREG(status.st_mode):
                problems.append(f"instructions: {path} is no file with text; leave it out of the patterns")
                return None
            if status.st_size > MOST_BYTES:
                problems.append(
                    f"instructions: {path} has {status.st_size} bytes, {MOST_BYTES} is the most; cut it into files"
                )
                return None
            text = path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            problems.append(f"instructions: {path}: expected UTF-8, found another byte at {error.start}; convert it")
            return None
        except OSError as error:
            problems.append(f"instructions: {path} cannot be read ({error.strerror}); check its permissions")
            return None
        return _File(stamp, tuple(self._chunks(path, text, problems)))

    def _chunks(self, path: Path, text: str, problems: list[str]) -> list[Fragment]:
        about, body = front_matter(text)
        said = about.get("priority", "guidance")
        priority: Priority = next((each for each in PRIORITIES if each == said), "guidance")
        if priority != said:
            problems.append(
                f"instructions: {path}: priority: expected one of {', '.join(PRIORITIES)}, found {said!r};"
                " it is read as guidance"
            )
        folder = self._proxy.config.path.absolute().parent
        name = path.relative_to(folder) if path.is_relative_to(folder) else path
        return fragments(body, f"file {name}", priority)

    # -- the prompts of upstreams

    def ask(self) -> None:
        """Ask the upstreams that are up and were not asked yet. What they answer is there later."""
        for upstream in self._proxy.upstreams.values():
            capabilities = self._proxy.capabilities_known.get(upstream.name) or {}
            due = upstream.name not in self._asked and upstream.is_up and "prompts" in capabilities
            if due and upstream.ask("prompts/list", {}, partial(self._listed, upstream)):
                self._asked.add(upstream.name)

    def prompts_changed(self, upstream: Upstream) -> None:
        """It has said that its prompts are others now."""
        self._asked.discard(upstream.name)

    def _listed(self, upstream: Upstream, reply: Reply) -> None:
        found: dict[str, tuple[Fragment, ...]] = {}
        for prompt in _objects(reply, "prompts")[:MOST_PROMPTS]:
            name = prompt.get("name")
            if not isinstance(name, str):
                continue
            exposed = names.plain_name(self._proxy.prefix(upstream.name), name)
            found[name] = tuple(
                fragments(_described(exposed, prompt)[:MOST_SAID], f"prompt {exposed}", "guidance", upstream.name)
            )
            if not any(_arguments(prompt, required=True)):
                upstream.ask("prompts/get", {"name": name}, partial(self._got, upstream, name, exposed))
        self._prompts[upstream.name] = found
        self.version += 1

    def _got(self, upstream: Upstream, name: str, exposed: str, reply: Reply) -> None:
        contents = (message.get("content") for message in _objects(reply, "messages"))
        texts = [each["text"] for each in contents if isinstance(each, dict) and isinstance(each.get("text"), str)]
        text = "\n\n".join(texts)[:MOST_SAID]
        if text.strip() and name in self._prompts.get(upstream.name, {}):
            said = fragments(text, f"prompt {exposed}", "guidance", upstream.name)
            self._prompts[upstream.name][name] = tuple(said)
            self.version += 1


def _applies(hit: Hit) -> bool:
    return hit.relevance >= (FOREIGN_APPLIES if hit.fragment.upstream else APPLIES)


def _objects(reply: Reply, key: str) -> list[dict[str, Any]]:
    """The members of a list in a result; [] for anything else."""
    if isinstance(reply, Lost) or not isinstance(reply.result, Raw):
        return []
    try:
        listed = jsonrpc.plain(jsonrpc.fields(reply.result).get(key, Raw(b"[]")))
    except ValueError:
        return []
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _arguments(prompt: Mapping[str, Any], *, required: bool) -> Iterator[str]:
    listed = prompt.get("arguments")
    for argument in listed if isinstance(listed, list) else ():
        if isinstance(argument, dict) and (not required or argument.get("required") is True):
            yield str(argument.get("name"))


def _described(exposed: str, prompt: Mapping[str, Any]) -> str:
    """A prompt that needs arguments, as far as its listing tells."""
    about = " ".join(str(prompt.get(key) or "") for key in ("title", "description")).strip()
    wanted = ", ".join(_arguments(prompt, required=False))
    return f"Prompt {exposed}({wanted}): {about or 'no description'}"
