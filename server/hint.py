"""`foretool hint`, a prompt hook: stores the prompt and names the tools that it may need.

Claude Code runs it at `UserPromptSubmit` with JSON on stdin (`session_id`, `cwd`, `prompt` and more), waits for it, and
shows the model what it prints. So it must be quick and never get in the way: a deadline ends it, every error ends it
silently, and the exit status is always 0 (2 would block the prompt). It imports neither the event loop nor click, and
ranks only those tools of a large catalog that share a word with the prompt.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from foretool.server.config.loader import Config
    from foretool.storage.records import ToolId
    from foretool.storage.stores import Store

Head = tuple[str, "ToolId", str, bytes]
"""Upstream, exposed name, own name, and the first bytes of the definition of a tool."""

DEADLINE_MS: Final = 145.0
"""Longest life of the process, unless the variable FORETOOL_HINT_MS sets another limit."""
TOKENS: Final = 300
"""Longest output."""
TOOLS: Final = 5
MOST_STDIN: Final = 4 * 1024 * 1024
MOST_TEXT: Final = 20_000
"""Characters of a prompt that are stored; pasted text can be megabytes."""
MOST_SEARCHED: Final = 2_000
"""Characters of a prompt that are searched with."""
MOST_RANKED: Final = 100
"""How many tools are read and ranked, those with most words of the prompt; ranking 4,400 finds 3 in 100 more."""
HEAD_BYTES: Final = 600
"""Bytes of a definition that are scanned for words; they mostly hold its name and description."""
IN_NAME: Final = 1.5
"""Weight of a word that is in the name too."""
MOST_TERMS: Final = 20
HEAD: Final = (
    "Tools behind foretool that may fit this request; call a listed one by its name, and any other through call_tool,"
    " or call_tool_write if marked write:"
)


def main(config: Path | None) -> int:
    """Answer the prompt on stdin. Returns the exit status, which is always 0."""
    # Python handles the signal between two bytecodes, so a long call into C delays it a little.
    signal.signal(signal.SIGALRM, lambda number, frame: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, _left_s())
    try:
        hint = answer_prompt(sys.stdin.buffer.read(MOST_STDIN), config)
    except Exception:  # noqa: BLE001 -- no error is worth holding up a prompt
        hint = ""
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    if hint:
        sys.stdout.write(hint + "\n")
        sys.stdout.flush()
    return 0


def _left_s() -> float:
    """Return what is left of the deadline. How long Python took to start is only known as processor time."""
    written = os.environ.get("FORETOOL_HINT_MS", "")
    total = float(written) if written.isdecimal() else DEADLINE_MS
    return max(total / 1000 - time.process_time(), 0.001)


def answer_prompt(event_json: bytes, path: Path | None = None) -> str:
    """Store the prompt and return the text that names its tools, "" if none is likely. May raise any error."""
    import msgspec

    event: dict[str, Any] = msgspec.json.decode(event_json, type=dict[str, Any])
    text = event.get("prompt")
    if not isinstance(text, str) or not text.strip():
        return ""
    from foretool.server.config.loader import load
    from foretool.storage.opening import open_store
    from foretool.storage.records import Prompt
    from foretool.storage.stores import StorageError

    config = load(path)
    with open_store(config.storage, busy_ms=50) as store:
        if config.settings.record != "off":
            store.hide(lambda: config.secrets)
            # Cut only now: half a secret would not be recognised.
            clean = config.secrets.redact(text)[:MOST_TEXT].encode("utf-8", "replace").decode()
            session, cwd = (str(event.get(key) or "") for key in ("session_id", "cwd"))
            # The store may be busy or full, and the hint is still useful.
            with contextlib.suppress(StorageError):
                store.tasks.add_prompt(Prompt(time.time(), clean, session, cwd))
        return _name_tools(config, store, text[:MOST_SEARCHED])


def _name_tools(config: Config, store: Store, text: str) -> str:
    """Return a line for each likely tool, in at most `TOKENS` tokens, or "" if none is likely."""
    from foretool.retrieval.confidence import level
    from foretool.retrieval.corpus import Corpus
    from foretool.retrieval.document import document, summary_line
    from foretool.retrieval.pipeline import Pipeline
    from foretool.retrieval.ranking import Query
    from foretool.retrieval.tokens import estimate
    from foretool.server.config.servers import fingerprint
    from foretool.server.trust.policy import Reach
    from foretool.server.trust.text import one_line

    reached = {name: fingerprint(server) for name, server in config.servers.items()}
    heads = [
        head
        for head in store.catalog.tool_heads(list(reached.items()), HEAD_BYTES)
        if config.servers[head[0]].offers(head[2])
    ]
    near = store.catalog.tools_named((tool, name, reached[name]) for name, tool, _, _ in _preselect(heads, text))
    reach = Reach(config.profiles[""], config.servers, config.settings)
    near = list(filter(reach.finds, near))
    words = {name: server.entry.description for name, server in config.servers.items()}
    query = Query(lines=(text,))
    ranking = Pipeline(Corpus(near, words)).rank(query, limit=TOOLS)
    if level(ranking) == "none":
        return ""
    by_id = {tool.id: tool for tool in near}
    working_set = store.serving.working_set("/frozen")
    listed = working_set.tools if working_set is not None else ()
    lines = [HEAD]
    left = TOKENS - estimate(HEAD)
    for each in ranking.ranked:
        writes = reach.verdict(by_id[each.tool]).bridge == "call_tool_write"
        mark = " (listed)" if each.tool in listed else " (write)" if writes else ""
        # Earlier versions kept invisible characters in the store.
        line = f"- {each.tool}{mark}: {one_line(summary_line(document(by_id[each.tool])))}"
        left -= estimate(line) + 1
        if left < 0:
            break
        lines.append(line)
    return "\n".join(lines) if len(lines) > 1 else ""


def _preselect(heads: Sequence[Head], text: str) -> list[Head]:
    """Return the tools whose names and first bytes contain most words of the text, where rare words count more.

    Reading a tool takes a hundred times as long as looking for a few words in its first bytes.
    """
    from heapq import nlargest
    from math import log

    from foretool.retrieval.words import terms

    if len(heads) <= MOST_RANKED:
        return list(heads)
    # Long words say most, and looking for 20 of them in 5,000 tools takes milliseconds.
    wanted = nlargest(MOST_TERMS, dict.fromkeys(terms(text)), key=len)
    names, texts = [tool.lower() for _, tool, _, _ in heads], [head.lower() for *_, head in heads]
    scores = [0.0] * len(heads)
    for term in wanted:
        encoded = term.encode()
        matching = [place for place, text_of_tool in enumerate(texts) if encoded in text_of_tool]
        weight = log(1 + len(heads) / (1 + len(matching)))
        for place in matching:
            scores[place] += weight * (IN_NAME if term in names[place] else 1.0)
    best = nlargest(MOST_RANKED, range(len(heads)), key=lambda place: (scores[place], -place))
    return [heads[place] for place in sorted(best) if scores[place] > 0.0]
