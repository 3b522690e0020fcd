"""A profile goes by its own use of tools, in lists and in searches."""

from __future__ import annotations

import time
from pathlib import Path

from command_fakes import remember, write_config
from requirements import requirement

from foretool.retrieval.ranking import Query
from foretool.server import offline
from foretool.server.config import loader
from foretool.storage.opening import open_store
from foretool.storage.records import Call, SessionRecord, ToolId

TEXT = "Works on a number."
ADD, SUB, MOON, RAIN = (ToolId(name) for name in ("calc__add", "calc__sub", "sky__moon", "sky__rain"))
NOW = time.time()


@requirement("learn:profiles")
def test_lists_and_searches_of_a_profile_follow_its_own_use(tmp_path: Path) -> None:
    config = loader.load(
        write_config(tmp_path, encoder="none", profiles={"ops": {}, "web": {}}, list_tokens=780, list_whole=False)
    )
    used = {"ops": (RAIN, MOON), "web": (ADD, SUB)}
    with open_store(config.storage) as store:
        remember(config, store, "calc", {"add": TEXT, "sub": TEXT, "sum": TEXT})
        remember(config, store, "sky", {"moon": TEXT, "rain": TEXT})
        for profile, tools in used.items():
            store.sessions.begin(SessionRecord(profile, "c", "1", "modern", "http", profile, NOW - 60, NOW))
            store.calls.record([
                Call(profile, NOW - 60 + number / 10, tool, tool.partition("__")[0], "name", False, "ok", 1.0, True, "")
                for number in range(150) for tool in tools
            ])  # fmt: skip
        store.calls.usage()
    with offline.open_offline(config) as app:
        for profile, tools in used.items():
            ranked = app.lists.maker.draft(config.profiles[profile], "frozen").ranked
            assert set(ranked[:2]) == set(tools)
            query = Query(("works",), profile=profile)
            ranked = [each.tool for each in app.search.find_now(query, lambda tool: True, 5).ranked]
            assert set(ranked[:2]) == set(tools)
