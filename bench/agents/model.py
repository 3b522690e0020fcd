"""The stub of the model: follows a script of tool calls and keeps what every request put before it.

The script: `discover_tools`, then the tool that was found by its own name, then another tool through a bridge with the
handle of the answer, then text. The n-th request that carries our tools gets the n-th step.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.agents.dialects import Answer, Gemini, Json, Request, Use, dialect_of
from bench.servers import loopback

TASK = "compress a folder"
FOUND, BRIDGED = "disk__zip_folder", "mail__send_letter"
DISCOVER, BRIDGE = "discover_tools", "call_tool_write"
_HANDLE = re.compile(r'handle[\\": ]+([A-Za-z0-9_-]{22})')
"""The handle in the text of an answer, or in its structure, which may be JSON within JSON."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of the conversation: when it came, what it held, and what the model answered."""

    at: float
    request: Request
    answer: Answer = ""


class Model:
    """Answers the requests of one agent."""

    def __init__(self, think_s: float = 0.0, bridged: str = BRIDGED) -> None:
        """`think_s`: how long the model thinks before its second answer. `bridged`: the tool that it calls through a
        bridge."""
        self.turns: list[Turn] = []
        self.side: list[str] = []
        """Paths of requests beside the conversation."""
        self.serials = itertools.count(1)
        """Numbers of answers: some agents ignore a call whose id came before."""
        self._think_s = think_s
        self._bridged = bridged
        self._turn = threading.Lock()

    def answer(self, request: Request) -> Answer:
        """The answer to a request; one without our tools is beside the conversation."""
        name = _named(request, DISCOVER)
        if name is None:
            if (search := next((each for each in request.tools if "tool_search" in each), None)) is not None:
                return Use(search, {"query": DISCOVER})
            return "a title"
        with self._turn:
            step = len(self.turns) + 1
            answer = _step(step, request, name.removesuffix(DISCOVER), self._bridged)
            self.turns.append(Turn(time.time(), request, answer))
        if step == 2:
            time.sleep(self._think_s)
        return answer


def _named(request: Request, ending: str) -> str | None:
    """The tool whose name ends so, whatever the agent puts before it."""
    return next((name for name in request.tools if name.endswith(ending)), None)


def _step(step: int, request: Request, prefix: str, bridged: str = BRIDGED) -> Answer:
    namespace = request.namespaces.get(prefix + DISCOVER, "")
    if step == 1:
        return Use(prefix + DISCOVER, {"task": TASK}, namespace)
    if step == 2:
        return Use(_named(request, FOUND) or prefix + FOUND, {"text": "by its own name"}, namespace)
    if step == 3:
        handles = _HANDLE.findall("\n".join(request.results))
        arguments: Json = {"name": bridged, "arguments": {"text": "through the bridge"}}
        return Use(prefix + BRIDGE, arguments | ({"handle": handles[-1]} if handles else {}), namespace)
    return "done"


@contextmanager
def serve_stub(model: Model) -> Iterator[str]:
    """Serve the stub on loopback; yields its URL without a path."""

    class Stub(loopback.Handler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            dialect = dialect_of(self.path)
            request: Json = json.loads(body or b"{}") if dialect else {}
            if dialect is None or not request:
                model.side.append(self.path)
                self.say(b'{"input_tokens":1,"totalTokens":1}', "application/json")
                return
            answer = model.answer(dialect.read(request))
            streams = "streamGenerate" in self.path if isinstance(dialect, Gemini) else bool(request.get("stream"))
            reply = dialect.reply(str(request.get("model", "m")), answer, next(model.serials), streams=streams)
            self.say(reply, dialect.content_type if streams else "application/json")

        def do_GET(self) -> None:
            model.side.append(self.path)
            self.say(b'{"object":"list","data":[{"id":"stub","object":"model"}]}', "application/json")

        do_HEAD = do_GET

    with loopback.serve(Stub) as url:
        yield url
