"""Names are saved, now or once the store takes them."""

from __future__ import annotations

import asyncio
import sqlite3

from fakes import failing_store

from foretool.server.catalog.name_keeper import NameKeeper
from foretool.storage.records import ToolId


def test_names_that_the_store_refuses_are_saved_later() -> None:
    store, connection = failing_store()
    keeper = NameKeeper(store.catalog)

    async def keep() -> None:
        keeper.keep({ToolId("a__b"): ("a", "b")})
        await asyncio.sleep(0)

    connection.refuse = sqlite3.SQLITE_FULL
    asyncio.run(keep())
    assert keeper.load() == {}
    connection.refuse = 0
    keeper.save()
    assert keeper.load() == {("a", "b"): "a__b"}
