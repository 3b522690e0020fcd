"""Hints: texts of ours that name tools before a model has searched for them.

There are two. Behind a prompt of the user, a hook of the client shows the tools that may fit it (`prompt_answer`, and
`server.hint` where no proxy answers). Behind the answer of `discover_tools` or a bridge, the hidden tools are named
that are likely to be called next (`prediction`). What both say is in `texts`. Where a list may grow, it also gains such
tools (`prompt_hook`, `lists.growth`).

A hint is on record as an exposure, so a call of a tool that it named is no miss.
"""

MOST_TEXT = 20_000
"""Characters of a prompt that are stored; pasted text can be megabytes."""
AHEAD = 16_000
"""Characters behind them that are read: a secret across the end of what is stored is still recognised, a key too."""
