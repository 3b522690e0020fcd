"""Answers a prompt hook that asks over the local socket: ranks with everything that this proxy knows. It waits for
encoders that are still being opened, as long as the hook does.

The prompt is recorded here, so that the hook need not open the store. What the hook shows is recorded as an exposure.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from foretool.retrieval.ranking import Query
from foretool.server.catalog.names import CALL_WRITE
from foretool.server.catalog.search import RANKED, Search
from foretool.server.clients.registry import ClientRegistry
from foretool.server.clients.session import Session
from foretool.server.config.loader import LiveConfig, Profile
from foretool.server.hints import AHEAD, MOST_TEXT
from foretool.server.hints.prompt_hook import PromptHook, searched_lines
from foretool.server.hints.texts import Hint, Mark, is_doubtful, without_unasked, write_prompt_hint
from foretool.server.local.server import CallerLink, Hello, QuestionTalk, Service
from foretool.server.recording.recorder import Recorder
from foretool.server.trust.policy import TrustPolicy
from foretool.storage.records import Exposure, Prompt, Tool, ToolId, is_called, working_set_key
from foretool.storage.redaction import clean_beginning

if TYPE_CHECKING:
    from foretool.retrieval.ranking import Ranking
    from foretool.server.catalog.catalog import Catalog
    from foretool.server.trust.policy import Reach

log = logging.getLogger("foretool.hints")

_MOST_CLIENT: Final = 40
"""Characters of the client's name that a hook gives."""
_BEFORE_S: Final = 600
"""A session may begin so long after the prompt that led to it: a model may think for minutes."""
_PATIENCE_S: Final = 1.0
"""How long a hook of an older version waits, which does not say it."""
_LARGEST: Final = 512 * 1024
"""Bytes of a question: a character may take twelve."""


class PromptAnswers:
    def __init__(
        self, clients: ClientRegistry, search: Search, catalog: Catalog, recorder: Recorder,
        policy: TrustPolicy, config: LiveConfig, hook: PromptHook,
    ) -> None:  # fmt: skip
        self._clients = clients
        self._search = search
        self._catalog = catalog
        self._recorder = recorder
        self._policy = policy
        self._config = config
        self._hook = hook
        self._met: set[str] = set()
        """The keys of the sessions that know of the prompt before them."""

    def service(self) -> Service:
        """Return what the local socket offers as `hint`."""
        return Service(self._open, limit=_LARGEST)

    def _open(self, link: CallerLink, hello: Hello) -> QuestionTalk:
        return QuestionTalk(link, lambda question, reply: self._answer(hello, question, reply))

    def _answer(self, hello: Hello, question: dict[str, Any], reply: Callable[[dict[str, Any]], None]) -> None:
        prompt = read_question(question, self._recorder.now())
        profile = self._config.profile(hello.profile)
        session = self._session_of(profile.name, hello, prompt)
        self._record(prompt, session.record.key if session is not None else "")
        query = self.begin(prompt, profile, session)
        until = time.monotonic() + read_patience(question)

        def go(ranking: Ranking) -> None:
            # A hook that waits no longer shows nothing.
            is_late = time.monotonic() >= until
            reply({"text": "" if is_late else self.write(prompt, profile, session, ranking).text})

        def guard(step: Callable[[], None]) -> None:
            try:
                step()
            except Exception:  # the boundary of what runs once the encoders are open
                log.exception("a prompt could not be answered")
                reply({"text": ""})

        self._search.find(query, self._policy.reach(profile).finds, RANKED, go, guard)
        asyncio.get_running_loop().call_soon(self._hook.look)  # once the hook has its answer

    def begin(self, prompt: Prompt, profile: Profile, session: Session | None) -> Query:
        """Note a prompt of a session, if it is known whose user wrote it, and return what is searched for."""
        lines = searched_lines(prompt)
        if session is None:
            return Query(lines, (), (), (), profile.name)
        chat = session.conversations.whole
        chat.note_prompt(lines, prompt.at)
        return Query(lines, (), (), chat.servers_in_use(), profile.name)

    def write(self, prompt: Prompt, profile: Profile, session: Session | None, ranking: Ranking) -> Hint:
        """Return what a hook shows for a prompt, of which these tools are the best, and record that it is shown."""
        lines = searched_lines(prompt)
        reach = self._policy.reach(profile)
        listed, named = self._shown(profile.name, session)
        hint = write_prompt_hint(
            without_unasked(self._likely(lines, reach, ranking), "\n".join(lines)),
            lambda tool: Mark(listed(tool.id), reach.verdict(tool).bridge == CALL_WRITE, named(tool.id)),
        )
        if hint.tools:
            self._note_shown(hint, prompt, session)
        return hint

    def tick(self) -> None:
        """Tell each session that has begun of a prompt shortly before it, and which tools its hint named: VS Code runs
        the hook first, and starts a server that it knows once the model calls a tool."""
        begun = {each.record.key: each for client in self._clients if (each := client.session) is not None}
        for key in begun.keys() - self._met:
            self._take_earlier(begun[key])
        self._met = set(begun)

    def _take_earlier(self, session: Session) -> None:
        began = session.record.started_at
        prompt = self._recorder.latest_prompt(began - _BEFORE_S, began)
        if prompt is None or prompt.owner:
            return
        if self.sessions_of(session.record.profile, prompt.cwd, prompt.client) != [session]:
            return
        chat = session.conversations.whole
        chat.lines = chat.lines or searched_lines(prompt)
        hints = [each for each in self._recorder.exposures(prompt.session) if each.at == prompt.at]
        chat.note_named(tool for hint in hints for tool in hint.tools)
        chat.note_hint(tool for tool in chat.named if not session.list.sees(tool))
        self._recorder.hand_over(prompt, session.record.key)

    def _record(self, prompt: Prompt, owner: str) -> None:
        if not self._config.keeps_text:
            return
        kept = clean_beginning(prompt.text, self._config.redact, MOST_TEXT, AHEAD)
        clean = kept.encode("utf-8", "replace").decode()
        self._recorder.add_prompt(replace(prompt, text=clean, owner=owner))

    def _session_of(self, profile: str, hello: Hello, prompt: Prompt) -> Session | None:
        """Return the session whose user wrote the prompt, where only one can be meant."""
        likely = self.sessions_of(profile, prompt.cwd or hello.folder, prompt.client, others=count_others(hello))
        return likely[0] if len(likely) == 1 else None

    def sessions_of(self, profile: str, folder: str, named: str, others: int = 0) -> list[Session]:
        """Return the sessions that the hook of a client (`named`, "" if it is not known) which runs in a folder may
        speak of: those of a client of that name, in that folder or the nearest one above it. A client of another name
        is meant only where no other is connected; and the only one of that name, whatever folder its shell has gone
        into, where no other proxy (`others`) may have one too."""
        known = {
            client: client.session
            for client in self._clients
            if client.profile.name == profile and client.session is not None and not client.person.signs_in
        }
        own = [client for client, session in known.items() if named and is_called(session.record.client, named)]
        likely = own or (list(known) if not named or len(self._clients) == 1 else [])
        near = self._hook.nearest(likely, folder)
        return [known[client] for client in near or (own if len(own) == 1 and not others else [])]

    def _likely(self, lines: tuple[str, ...], reach: Reach, ranking: Ranking) -> Iterator[Tool]:
        """Return the tools that fit the prompt, best first; none if that is not likely of any."""
        ids = [each.tool for each in ranking.ranked]
        if is_doubtful(ranking, self._search.judge(ranking).level):
            ids = self._surely_next(lines)
        return filter(reach.finds, (tool for each in ids if (tool := self._catalog.get(each)) is not None))

    def _note_shown(self, hint: Hint, prompt: Prompt, session: Session | None) -> None:
        """Record what the model reads; a call of a tool that it names is then no miss."""
        view = session.list.view if session is not None else None
        policy, epoch = (view.policy, view.epoch) if view is not None else ("frozen", 0)
        key = session.record.key if session is not None else prompt.session
        at = self._recorder.now()
        self._recorder.exposure(Exposure(key, at, policy, epoch, hint.tools, hint.tokens, "prompt"))
        if session is not None:
            chat = session.conversations.whole
            chat.note_named(hint.tools)
            chat.note_hint(tool for tool in hint.tools if not session.list.sees(tool))

    def _surely_next(self, lines: tuple[str, ...]) -> list[ToolId]:
        """Return the tools that past tasks with such words began with, where that is likely enough for a hint."""
        chances, _ = self._search.predict((), lines)
        return [tool for tool, chance in chances.items() if chance >= self._config.settings.hint_threshold]

    def _shown(
        self, profile: str, session: Session | None
    ) -> tuple[Callable[[ToolId], bool], Callable[[ToolId], bool]]:
        """Return what tells whether the client's list has a tool, and whether it names one."""
        if session is not None:
            return session.list.sees, session.list.names
        working_set = self._recorder.working_set(working_set_key(profile, "frozen"))
        if working_set is None:
            return _has_none, _has_none
        return frozenset(working_set.tools).__contains__, frozenset(working_set.named).__contains__


def count_others(hello: Hello) -> int:
    """Return how many other proxies a hook might have asked."""
    others = hello.said.get("others")
    return others if isinstance(others, int) else 0


def _has_none(tool: ToolId) -> bool:
    return False


def read_patience(question: dict[str, Any]) -> float:
    """Return for how many seconds a hook waits."""
    said = question.get("patience_s")
    return float(said) if isinstance(said, int | float) and math.isfinite(said) else _PATIENCE_S


def read_question(question: dict[str, Any], now: float) -> Prompt:
    """Read what a hook asks. Raises `ValueError`."""
    text, at = question.get("prompt"), question.get("at")
    if not isinstance(text, str) or not text.strip():
        raise ValueError("prompt: expected a text")
    is_time = isinstance(at, int | float) and math.isfinite(at) and abs(now - at) < 60
    session, cwd = (str(question.get(key) or "")[:4096] for key in ("session", "cwd"))
    client = str(question.get("client") or "")[:_MOST_CLIENT]
    return Prompt(float(at) if is_time and at is not None else now, text, session, cwd, client)
