"""`foretool hint`: a prompt hook. Reads what a client says of a prompt, keeps it, and names the tools it may need.

Claude Code runs it at `UserPromptSubmit` with JSON on stdin (`session_id`, `cwd`, `prompt` and more), waits for it, and
shows the model what it prints. So it must be quick and never in the way: a deadline ends it, whatever is wrong
ends it silently, and the exit status is always 0 (2 would block the prompt). Nothing of the proxy is imported: no event
loop, no click, and of a large catalog only the tools that share a word with the prompt are ranked.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from foretool.server.config.loader import Config
    from foretool.storage.records import ToolId
    from foretool.storage.stores import Store

Head = tuple[str, "ToolId", str, bytes]
"""Upstream, exposed name, name there, first bytes of the definition."""

DEADLINE_MS: Final = 145.0
"""From the start of the process to its end, unless the variable FORETOOL_HINT_MS says otherwise."""
TOKENS: Final = 300
"""Most of what is printed."""
TOOLS: Final = 5
MOST_STDIN: Final = 4 * 1024 * 1024
MOST_TEXT: Final = 20_000
"""Characters of a prompt that are kept; what is pasted into one can be megabytes."""
MOST_SEARCHED: Final = 2_000
"""Characters of a prompt that tools are looked for with."""
MOST_RANKED: Final = 100
"""Tools that are read and ranked: those that share most words with the prompt.

Hit@5 on 150 dev queries of stabletoolbench and of toole, each among 4,400 other tools: .87 and .46 (.85 and .44 with
60 tools); all tools ranked, on 200 such queries: .90 and .48."""
HEAD_BYTES: Final = 600
"""Of a definition: its name and description, mostly."""
IN_NAME: Final = 1.5
"""What a word counts that is in the name as well."""
MOST_TERMS: Final = 20
HEAD: Final = (
    "Tools behind foretool that may fit this request; call one by its name, through call_tool where it is not listed:"
)


def main(arguments: Sequence[str]) -> int:
    """Always 0."""
    quiet = _Quiet(_left_s())
    try:
        said = hint(sys.stdin.buffer.read(MOST_STDIN), _config_path(arguments))
    except Exception:  # noqa: BLE001 -- the boundary: a prompt is worth more than whatever went wrong here
        said = ""
    quiet.over()
    if said:
        sys.stdout.write(said + "\n")
        sys.stdout.flush()
    return 0


def _left_s() -> float:
    """What is left of the deadline; what Python took to start is known as processor time alone."""
    written = os.environ.get("FORETOOL_HINT_MS", "")
    total = float(written) if written.isdecimal() else DEADLINE_MS
    return max(total / 1000 - time.process_time(), 0.001)


def _config_path(arguments: Sequence[str]) -> Path | None:
    written = arguments[-1].removeprefix("--config=") if len(arguments) > 1 else ""
    return Path(written) if written else None


class _Quiet:
    """Ends the process, silently, when time is over."""

    def __init__(self, seconds: float) -> None:
        # The signal is handled between two steps of the interpreter, so a long one in C delays it a little.
        signal.signal(signal.SIGALRM, self._end)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def _end(self, number: int, frame: FrameType | None) -> None:
        os._exit(0)

    def over(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


# What it does


def hint(told: bytes, path: Path | None = None) -> str:
    """Keep the prompt, and what to say of it; "" for nothing. Raises whatever goes wrong."""
    import msgspec

    event: dict[str, Any] = msgspec.json.decode(told, type=dict[str, Any])
    text = event.get("prompt")
    if not isinstance(text, str) or not text.strip():
        return ""
    from foretool.server.config import loader as configs
    from foretool.storage.opening import open_store

    config = configs.load(path or configs.default_config())
    with open_store(config.storage, busy_ms=50) as store:
        if config.settings.record != "off":
            _keep(store, config, event, text)
        return _said(config, store, text[:MOST_SEARCHED])


def _keep(store: Store, config: Config, event: dict[str, Any], text: str) -> None:
    from foretool.storage.records import Prompt
    from foretool.storage.stores import StorageError

    clean = config.redact(text[:MOST_TEXT]).encode("utf-8", "replace").decode()
    session, cwd = (str(event.get(key) or "") for key in ("session_id", "cwd"))
    try:
        store.tasks.add_prompt(Prompt(time.time(), clean, session, cwd))
    except StorageError:
        return  # busy or full: the hint is worth something all the same


def _said(config: Config, store: Store, text: str) -> str:
    """The likely tools, in `TOKENS` tokens; "" where none is likely."""
    from foretool.retrieval.confidence import level
    from foretool.retrieval.document import document, summary_line
    from foretool.retrieval.pipeline import Corpus, Pipeline
    from foretool.retrieval.ranking import Query
    from foretool.retrieval.tokens import estimate
    from foretool.server.config.servers import fingerprint

    reached = {name: fingerprint(server) for name, server in config.servers.items()}
    heads = [
        head
        for head in store.catalog.tool_heads(list(reached.items()), HEAD_BYTES)
        if config.servers[head[0]].offers(head[2])
    ]
    near = store.catalog.tools_named((tool, name, reached[name]) for name, tool, _, _ in _nearest(heads, text))
    words = {name: server.description for name, server in config.servers.items()}
    query = Query(lines=(text,))
    ranking = Pipeline(Corpus(near, words)).rank(query, limit=TOOLS)
    if level(ranking) == "none":
        return ""
    by_id = {tool.id: tool for tool in near}
    listed = _listed(store)
    lines = [HEAD]
    left = TOKENS - estimate(HEAD)
    for each in ranking.ranked:
        mark = " (listed)" if each.tool in listed else ""
        line = f"- {each.tool}{mark}: {summary_line(document(by_id[each.tool]))}"
        left -= estimate(line) + 1
        if left < 0:
            break
        lines.append(line)
    return "\n".join(lines) if len(lines) > 1 else ""


def _nearest(heads: Sequence[Head], text: str) -> list[Head]:
    """Of many tools those whose names and first bytes have most of the words, a rare word counting more: to read one
    takes a hundred times as long as to look for a few words in it."""
    from heapq import nlargest
    from math import log

    from foretool.retrieval.words import terms

    if len(heads) <= MOST_RANKED:
        return list(heads)
    # The longest words tell most, and a score of them are looked for in 5,000 tools within milliseconds.
    wanted = nlargest(MOST_TERMS, dict.fromkeys(terms(text)), key=len)
    names, texts = [tool.lower() for _, tool, _, _ in heads], [head.lower() for *_, head in heads]
    scores = [0.0] * len(heads)
    for term in wanted:
        spelled = term.encode()
        having = [place for place, read in enumerate(texts) if spelled in read]
        worth = log(1 + len(heads) / (1 + len(having)))
        for place in having:
            scores[place] += worth * (IN_NAME if term in names[place] else 1.0)
    best = nlargest(MOST_RANKED, range(len(heads)), key=lambda place: (scores[place], -place))
    return [heads[place] for place in sorted(best) if scores[place] > 0.0]


def _listed(store: Store) -> Iterable[ToolId]:
    """What everyone's frozen list has now, if there is one."""
    working_set = store.serving.working_set("/frozen")
    return frozenset(working_set.tools) if working_set is not None else frozenset()
