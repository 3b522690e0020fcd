"""Every kind of encoder is opened by its weights; an endpoint: what is sent, what is read, and what goes wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

np = pytest.importorskip("numpy", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")

from foretool.retrieval.encoders import EncoderError, Endpoint, Weights  # noqa: E402
from foretool.server.catalog.encoders import AT_ONCE, TRIES, EndpointEncoder  # noqa: E402

WEIGHTS = Weights("tiny", "at here", "licence of its provider", kind="endpoint")


class Provider(ThreadingHTTPServer):
    """Embeds a text as its length and 1; `troubles` are answered first."""

    daemon_threads = True

    def __init__(self, *troubles: tuple[int, Any]) -> None:
        self.troubles = list(troubles)
        self.asked: list[dict[str, Any]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: Provider

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append({"path": self.path, "key": self.headers.get("Authorization"), **body})
        data = [{"index": at, "embedding": [len(text), 1.0]} for at, text in enumerate(body["input"])]
        # Not in order: `index` says where each belongs.
        status, answer = self.server.troubles.pop(0) if self.server.troubles else (200, {"data": data[::-1]})
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def provider(*troubles: tuple[int, Any]) -> Iterator[Provider]:
    with Provider(*troubles) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_texts_go_in_batches_and_come_back_in_order() -> None:
    texts = ["x" * (at + 1) for at in range(AT_ONCE + 3)] + [""]
    with provider() as server:
        vectors = EndpointEncoder(WEIGHTS, Endpoint(server.url + "/", "s3cret")).documents(texts)
        assert [(each["path"], each["key"], each["model"], len(each["input"])) for each in server.asked] == [
            ("/v1/embeddings", "Bearer s3cret", "tiny", AT_ONCE),
            ("/v1/embeddings", "Bearer s3cret", "tiny", 4),
        ]
        assert server.asked[1]["input"][-1] == " "
    ratios = (vectors[:, 0] / vectors[:, 1]).tolist()
    assert [round(each) for each in ratios] == [*range(1, AT_ONCE + 4), 1]
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)


def test_a_busy_endpoint_is_asked_again_for_tools_and_not_for_queries() -> None:
    busy = (429, {"error": "slow down"})
    with provider(busy, (503, {}), busy, busy) as server:
        encoder = EndpointEncoder(WEIGHTS, Endpoint(server.url), pause_s=0.0)
        with pytest.raises(EncoderError, match=r"answered 429: .*slow down"):
            encoder.queries(["a"])
        assert len(server.asked) == 1
        assert encoder.documents(["a"]).shape == (1, 2)
        assert len(server.asked) == 1 + TRIES
        assert server.asked[0]["key"] is None


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ((401, {"error": "wrong key"}), "answered 401: .*wrong key"),
        ((200, {"data": [{"index": 0}]}), "sent no embeddings: KeyError"),
        ((200, []), "sent no embeddings: TypeError"),
        (
            (200, {"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0]}]}),
            "2 vectors for 1 texts",
        ),
    ],
)
def test_what_is_wrong_for_good_is_said_at_once_and_without_the_key(trouble: tuple[int, Any], said: str) -> None:
    with provider(trouble) as server:
        with pytest.raises(EncoderError, match=said) as caught:
            EndpointEncoder(WEIGHTS, Endpoint(server.url, "s3cret"), pause_s=0.0).documents(["a"])
        assert len(server.asked) == 1
    assert "s3cret" not in str(caught.value)


def test_an_endpoint_that_is_not_there_is_an_encoder_error() -> None:
    with provider() as server:
        url = server.url
    with pytest.raises(EncoderError, match="ConnectError"):
        EndpointEncoder(WEIGHTS, Endpoint(url)).queries(["a"])
