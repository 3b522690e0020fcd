"""The log that profiles learn from has the tasks of each with the sessions of that profile."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from bench.growth.learning import Task, fill
from bench.learning.profiles import PROFILES, profile_of, ranks, share_out
from foretool.server.config import loader
from foretool.storage.opening import open_store
from foretool.storage.records import Tool, ToolId

TOOLS = [ToolId(f"u__t{number}") for number in range(9)]


def test_each_session_has_the_profile_of_its_first_call(tmp_path: Path) -> None:
    tools = [Tool(tool, "u", tool[3:], b'{"name": "x", "inputSchema": {}}', tool, 10) for tool in TOOLS]
    tasks = [Task(f"do {tool}", (tool, TOOLS[0])) for tool in TOOLS]
    path = fill(tmp_path, tools, iter(tasks), "none")
    share_out(path)
    config = loader.load(path)
    assert set(config.profiles) == {"", *PROFILES}
    with open_store(config.storage) as store:
        found = store.sessions.profiles([f"s{number}" for number in range(1, 10)])
        store.calls.usage()
        counted = {profile: store.calls.counted_usage_of(profile) for profile in PROFILES}
    assert found == {f"s{number}": profile_of(tool) for number, tool in enumerate(TOOLS, 1)}
    assert set(found.values()) == set(PROFILES) and all(counted.values())
    # Without models of its own a profile is ranked by what is for all.
    for_all, own = ranks(path, tasks, PROFILES[0])
    assert for_all == own and len(own) == len(tasks)
