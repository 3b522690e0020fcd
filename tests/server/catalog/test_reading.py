"""Who needs every tool is called back once all are read, in the order of asking."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.reading import CatalogReader

pytestmark = pytest.mark.anyio


class SlowCatalog:
    """Is read in three steps, the last of which may fail."""

    def __init__(self, *, fails: bool = False) -> None:
        self.is_unread = True
        self.fails = fails
        self.readings = 0

    def read_rest(self) -> Iterator[None]:
        self.readings += 1
        yield from (None, None, None)
        if self.fails:
            raise ValueError("damaged")
        self.is_unread = False


async def test_it_calls_back_at_once_where_everything_is_read() -> None:
    catalog, heard = SlowCatalog(), list[str]()
    catalog.is_unread = False
    CatalogReader(cast("Catalog", catalog)).when_read(lambda: heard.append("now"))
    assert heard == ["now"]


@pytest.mark.parametrize("fails", [False, True])
async def test_it_reads_once_for_all_who_wait_and_calls_them_also_where_that_fails(*, fails: bool) -> None:
    catalog, heard = SlowCatalog(fails=fails), list[str]()
    reader = CatalogReader(cast("Catalog", catalog))
    reader.when_read(lambda: heard.append("first"))
    reader.when_read(lambda: heard.append("second"))
    assert heard == []
    await reader.finish()
    assert heard == ["first", "second"]
    assert catalog.readings == 1
