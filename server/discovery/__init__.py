"""The way of a search, from `discover_tools` to its answer. `DiscoverTools` takes each step, in this order:

1. The arguments are read (`arguments`): a task, one need a line, or names of tools, and how far what is seen suffices.
2. The search waits, for a bounded time, for servers that have not listed and for the vectors of the task.
3. `catalog.search` ranks the tools that the profile of the client reaches.
4. The gate says how sure that is and how many tools that takes (`answer_shape`); tools that do the same become groups
   (`match_groups`).
5. The answer is written (`answer`, `answer_text`): matches with what their calls need (`schemas`), instructions that
   belong to them (`instructions`), a map of the servers where nothing fits (`server_map`).
6. The search is recorded, and the session decides what it has missed.

`agent_step` plans one step of an agent from the same ranking.
"""
