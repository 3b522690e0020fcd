"""Grows a list for a prompt that a hook has recorded (`foretool hint`), while the model still reads.

The hook writes to the store that this proxy shares, and the proxy notices a new prompt within `_LOOK_S` where a list
may grow for it, and at once if the hook has asked this proxy. Where a hook is in use, the encoders are opened once a
client has its list: the first prompt of a conversation comes seconds later, and is then ranked by meaning.

A prompt counts as our client's if there is exactly one client, unless a person of an authorization server calls, and,
on stdio, if it was recorded in our folder or one below it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from foretool.retrieval.ranking import Query, task_lines
from foretool.server.catalog.search import Search
from foretool.server.clients.client import Client
from foretool.server.clients.registry import ClientRegistry
from foretool.server.clients.session import Session
from foretool.server.hints.prediction import Predictor
from foretool.server.lists.order import DEPTH
from foretool.server.transports.tasks import wait_for_tick
from foretool.server.trust.policy import TrustPolicy
from foretool.storage.engine import StorageError
from foretool.storage.records import Prompt
from foretool.storage.sql.discoveries import TaskStore

if TYPE_CHECKING:
    from foretool.retrieval.ranking import Ranking

_LOOK_S: Final = 0.2
_IN_USE_S: Final = 30 * 86_400
"""A hook that has recorded a prompt within this time is taken to be in use."""
_MOST_CHARACTERS: Final = 2_000
"""A search uses at most so many characters of a prompt: users may paste megabytes into one."""


class PromptHook:
    """Watches the store for prompts and has the list of the only client grow for them."""

    def __init__(
        self, store: TaskStore, clients: ClientRegistry, search: Search, predictor: Predictor,
        policy: TrustPolicy, clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._store = store
        self._clients = clients
        self._search = search
        self._predictor = predictor
        self._policy = policy
        self._folder = ""
        with contextlib.suppress(OSError):  # the folder may be gone
            self._folder = str(Path.cwd())
        self._since = clock()
        self._seen = 0
        self._is_prepared = False
        """Whether the encoders were seen to, for the first prompt."""

    async def watch(self) -> None:
        """Look for new prompts until cancelled."""
        while True:
            await (asyncio.sleep(_LOOK_S) if self._find_growing() else wait_for_tick())
            await self._prepare()
            self.look()

    async def _prepare(self) -> None:
        """Open the encoders once a client has its list, if a hook is in use or was just installed. Without one they are
        opened when somebody searches, and take their memory only then."""
        if self._is_prepared or not any(each.session and each.session.list.view for each in self._clients):
            return
        self._is_prepared = True
        with contextlib.suppress(StorageError):
            is_in_use = bool(self._store.prompts(self._since - _IN_USE_S, 1))
            if is_in_use or await asyncio.to_thread(_is_installed):
                self._search.want_encoders()

    def _find_growing(self) -> tuple[Client, Session] | None:
        """Return the only client and its session, if its list may grow."""
        client = self._clients.only_client()
        session = client.session if client is not None else None
        if client is None or session is None or session.list.view is None:
            return None
        return (client, session) if client.tools.policy(session.list) == "growing" else None

    def look(self) -> None:
        """Grow the list of the only client for the latest prompt, if that is new and the policy lets the list grow."""
        if (growing := self._find_growing()) is None:
            return
        client, session = growing
        with contextlib.suppress(StorageError):
            new = [each for each in self._store.prompts(self._since, 1) if each.id > self._seen]
            if new:
                self._seen, self._since = new[0].id, new[0].at
                self._take(client, session, new[0])

    def nearest(self, clients: Sequence[Client], folder: str) -> list[Client]:
        """Return those of some clients that a prompt from this folder, "" for any, may be of: a client over HTTP, which
        has no folder, or one of this folder, else of the nearest one above it: its shell may have gone into a folder
        of its own."""
        if not folder:
            return list(clients)
        anywhere = [client for client in clients if client.transport != "stdio"]
        for place in (folder, *map(str, Path(folder).parents)):
            near = [client for client in clients if client not in anywhere and place == (client.folder or self._folder)]
            if near:
                return anywhere + near
        return anywhere

    def _take(self, client: Client, session: Session, prompt: Prompt) -> None:
        # A hook runs for the user of this machine, and not for people who sign in elsewhere.
        if client.person.signs_in or prompt.owner not in ("", session.record.key):
            return
        if not prompt.owner and not self.nearest([client], prompt.cwd):
            return
        chat = session.conversations.whole
        lines = searched_lines(prompt)
        chat.note_prompt(lines, prompt.at)
        query = Query(lines, (), (), chat.servers_in_use(), client.profile.name)

        def grow(ranking: Ranking) -> None:
            if client in self._clients:
                is_sure = self._search.judge(ranking).level in ("high", "medium")
                client.tools.grow_for_prompt(session.list, ranking.ranked, is_sure=is_sure)

        self._search.find(query, self._policy.reach(client.profile).finds, DEPTH, grow)


def _is_installed() -> bool:
    from foretool.server.setup.client_hooks import has_prompt_hook  # takes longer to import than a first list may

    return has_prompt_hook()


def searched_lines(prompt: Prompt) -> tuple[str, ...]:
    return task_lines(prompt.text[:_MOST_CHARACTERS])
