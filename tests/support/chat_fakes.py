"""A server that answers `/v1/chat/completions` as OpenAI, Ollama, llama.cpp and LM Studio do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Answer = Callable[[str], str]
"""Returns what the model writes about the text of a tool."""


def wishes(*texts: str) -> str:
    return json.dumps({"wishes": texts})


class ChatServer(ThreadingHTTPServer):
    """Answers by `answer`; `troubles` (status, body) come first. Refuses `response_format` if `is_old`."""

    daemon_threads = True

    def __init__(self, answer: Answer, *troubles: tuple[int, bytes], is_old: bool = False) -> None:
        self.answer, self.troubles, self.is_old = answer, list(troubles), is_old
        self.asked: list[dict[str, Any]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def sent(self) -> list[str]:
        """The texts of tools that were sent, in the order of their names."""
        return sorted(json.loads(each["messages"][1]["content"])["tool"] for each in self.asked)


class _Handler(BaseHTTPRequestHandler):
    server: ChatServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.is_old and "response_format" in body:
            self._send(400, b'{"error": {"message": "response_format is not supported"}}')
            return
        self.server.asked.append({"path": self.path, "key": self.headers.get("Authorization"), **body})
        if self.server.troubles:
            self._send(*self.server.troubles.pop(0))
            return
        said = self.server.answer(json.loads(body["messages"][1]["content"])["tool"])
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": said}}
        usage = {"prompt_tokens": 90, "completion_tokens": 10, "total_tokens": 100}
        whole = {"id": "c", "object": "chat.completion", "model": body["model"], "choices": [choice], "usage": usage}
        self._send(200, json.dumps(whole).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        if 300 <= status < 400:
            self.send_header("Location", body.decode())
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def chat_server(answer: Answer, *troubles: tuple[int, bytes], is_old: bool = False) -> Iterator[ChatServer]:
    with ChatServer(answer, *troubles, is_old=is_old) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
