"""The log of a user who has worked on many tasks."""

from __future__ import annotations

import time
from pathlib import Path

from bench.agents.tasks import TASKS
from bench.agents.used import work_through
from bench.processes import write_config
from foretool.server.config.loader import load
from foretool.storage.opening import open_store


def test_each_task_is_one_search_and_a_call_of_each_tool_that_it_needs(tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    work_through(config, len(TASKS), time.time())
    with open_store(load(config).storage) as store:
        used = {usage.tool: usage.calls for usage in store.calls.usage()}
    needed = [tools[0] for task in TASKS for tools in task.needs]
    assert used == {tool: needed.count(tool) for tool in needed}
