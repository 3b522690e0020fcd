"""What no user has to choose: times, sizes and habits of the proxy that are the same for all, each with its reason.

Code reads them like settings (`config.settings.hold_ms`). A file sets them only for tests and measurements: under
`foretool.limits`, where the environment has `FORETOOL_LIMITS`.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

FROM_FILE: Final = "FORETOOL_LIMITS"
"""The variable of this process that lets a file set limits."""


class Limits(Struct, frozen=True, kw_only=True):
    """The same for everybody; `Settings` adds what a person chooses."""

    hold_ms: int = 500
    """How long a result waits for a client to list its tools again: clients that do so need 20 to 200 ms."""
    cold_list_s: float = 2.0
    """How long the first list of a client waits for servers whose tools are not known yet; some clients give up after
    five seconds."""
    cold_search_s: float = 10.0
    """How long a search waits for servers that are starting and whose tools are not known yet, and a call by name for a
    server that is known to fail: a model waits gladly for an answer that has them."""
    epoch_s: float = 86_400.0
    """How often a list may change while it is in use: a prompt cache lives for minutes, habits for days. 0: only when
    the catalog does, or after learning."""
    list_whole: bool = True
    """Whether every tool is listed where all of them fit: nothing has to be discovered then."""
    list_whole_tokens: int = 10_000
    """All tools are listed up to so many tokens where `list_tokens` is not set: with all tools of a small catalog a
    model does more than with a search (`docs/agents.md`)."""
    list_fill: bool = True
    """Whether what is left of `list_tokens` is filled with tools that are probably needed."""
    list_names: bool = True
    """Whether a list names tools that it does not define: without that, a search must find them."""
    hint_threshold: float = 0.1
    """How probable a next call has to be for an answer to name its hidden tool."""
    shipped_wordings: bool = True
    """Whether tools of well-known servers are also found by the wordings that come with foretool."""
    share_words: int = 3
    """People who must have used a word over HTTP before it enters what is learned for all: one cannot be told from two
    others."""
    linger_s: float = 10.0
    """How long a shared proxy stays after its last window has gone: a client that restarts finds it."""
    unused_stop_s: float = 600.0
    """How long a local server runs after its last call once every client that called it has gone."""
    session_idle_s: float = 1800.0
    """How long an HTTP session lives without a request; 0: for ever."""
    header_s: float = 10.0
    """How long an HTTP connection may take until the header lines of a request are complete: slower is an attack."""
    max_bodies_mib: float = 64.0
    """How much all HTTP messages together may hold while they are received and answered, besides 64 KiB of each."""
