"""A prompt that a hook has recorded (`foretool hint`) is the task before anything is called for it: the list of a
growing client gains what it is likely to need while the model still reads.

The hook writes to the store that this proxy shares; a new prompt is noticed within `LOOK_S`. It is taken for that of
our client if there is just one, and, where it stands beside us on stdio, if it works in our folder.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from foretool.retrieval.list_growth import DEPTH
from foretool.retrieval.ranking import Query
from foretool.storage.stores import StorageError, Store

if TYPE_CHECKING:
    from foretool.retrieval.ranking import Ranking
    from foretool.server.clients.client import Client
    from foretool.server.clients.session import Session
    from foretool.server.proxy import Proxy
    from foretool.storage.records import Prompt

LOOK_S: Final = 0.2
MOST_CHARACTERS: Final = 2_000
"""Of a prompt that tools are looked for with; what is pasted into one can be megabytes."""


class Prompts:
    """See the module."""

    def __init__(self, proxy: Proxy, store: Store, clock: Callable[[], float], folder: Path | None = None) -> None:
        self._proxy = proxy
        self._store = store
        self._clock = clock
        self._folder = str(folder or Path.cwd())
        self._since = clock()
        self._seen = 0

    async def watch(self) -> None:
        """Look for new prompts, for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """Take up the latest prompt that is new, if a list can grow for it."""
        found = self._growing()
        if found is None:
            return
        with contextlib.suppress(StorageError):
            new = [each for each in self._store.tasks.prompts(self._since, 1) if each.id > self._seen]
            if new:
                self._seen, self._since = new[0].id, new[0].at
                self._take(*found, new[0])

    def _growing(self) -> tuple[Client, Session] | None:
        """The only client and its conversation, if its list may grow."""
        client = self._proxy.only_client()
        session = client.session if client is not None else None
        if client is None or session is None or session.view is None or client.policy(session) != "growing":
            return None
        return client, session

    def _take(self, client: Client, session: Session, prompt: Prompt) -> None:
        if client.transport == "stdio" and prompt.cwd not in ("", self._folder):
            return
        chat, proxy = session.conversation(), self._proxy
        lines = tuple(line.strip() for line in prompt.text[:MOST_CHARACTERS].splitlines() if line.strip())
        chat.prompted(lines, prompt.at)
        query = Query(lines, (), (), chat.servers_in_use())

        def answered(ranking: Ranking) -> None:
            from foretool.retrieval.confidence import level

            if client in proxy.clients:
                is_sure = level(ranking) in ("high", "medium")
                proxy.foresight.grow_for_prompt(client, session, ranking.ranked, is_sure=is_sure)

        proxy.search.find(query, client.profile.admits, DEPTH, answered)
