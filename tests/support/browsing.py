"""A browser before the page, without a socket: it keeps cookies by path, as browsers do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2

from foretool.desk.commands.replay import VERDICTS
from foretool.desk.page.access import PageDoor
from foretool.desk.page.rendering import Words
from foretool.desk.page.site import Site
from foretool.server.config.loader import load
from foretool.server.ledger.conditions import CONDITIONS
from foretool.server.ledger.story import CAUSES, NOTICED

HOME = "http://127.0.0.1:4000"


def make_door(config: Path, clock: Callable[[], float] = lambda: 0.0) -> PageDoor:
    return PageDoor(Site(load(config), Words(CAUSES, NOTICED, CONDITIONS, VERDICTS)).app, clock)


@asynccontextmanager
async def browser(door: PageDoor, *, opened: bool = True) -> AsyncIterator[httpx2.AsyncClient]:
    """`opened`: it has followed the link, and its addresses start below the page."""
    transport = httpx2.ASGITransport(app=door)
    async with httpx2.AsyncClient(transport=transport, base_url=HOME + (door.place if opened else "")) as client:
        if opened:
            answer = await client.get(HOME + door.link)
            assert answer.status_code == 200, answer.text
        yield client
