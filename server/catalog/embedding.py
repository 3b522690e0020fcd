"""Has every tool embedded in the background, and gives the ranking its encoders once somebody has searched.

The vectors are made by a short-lived process (`foretool.retrieval.encoders.worker`) and kept in the store, so that a
text is embedded once for all proxies. This process loads an encoder only after the first search in words, in a thread;
until then, and whenever there are no weights, words alone rank. Nothing here is heavy until then.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from foretool.server.config.settings import Settings
from foretool.storage.stores import StorageError, Store

if TYPE_CHECKING:
    from foretool.retrieval.encoders import Encoder, Endpoint, Weights
    from foretool.retrieval.rankers.dense import Meaning
    from foretool.server.catalog.catalog import Catalog
    from foretool.server.catalog.search import Search

SAVED_AT_ONCE: Final = 128
"""Vectors a transaction: what a killed worker loses at most."""

log = logging.getLogger("foretool.embedding")


class Wanted(Struct, frozen=True):
    """What the settings say of encoders."""

    encoder: str
    url: str
    key: str

    @staticmethod
    def of(settings: Settings) -> Wanted:
        return Wanted(settings.encoder, settings.encoder_url, settings.encoder_key)

    @property
    def endpoint(self) -> Endpoint:
        from foretool.retrieval.encoders import Endpoint

        return Endpoint(self.url, self.key)

    def weights(self) -> tuple[Weights, ...]:
        """Raises `EncoderError` for what was named and is not there."""
        from foretool.retrieval.encoders import find

        return find(self.encoder, self.endpoint)

    def __repr__(self) -> str:
        return f"Wanted({self.encoder!r}, {self.url!r}, ...)"


class Embedding:
    """See the module. `tick` is called now and then; everything takes place in one task at a time."""

    def __init__(self, settings: Settings, catalog: Catalog, store: Store, search: Search) -> None:
        self._catalog = catalog
        self._store = store
        self._search = search
        self._task: asyncio.Task[None] | None = None
        self._wanted: Wanted | None = None
        self._meaning: Meaning | None = None
        self.configure(settings)

    def configure(self, settings: Settings) -> None:
        """Follow changed settings; those that stayed the same change nothing."""
        wanted = Wanted.of(settings)
        if wanted == self._wanted:
            return
        if self._meaning is not None:
            self._meaning = None
            self._search.install_encoders(None)
        self._wanted = wanted
        self._weights: tuple[Weights, ...] | None = None
        self._done = -1  # version of the corpus that is embedded
        self.problem = ""
        """Why meaning takes no part, in words; empty while nothing is wrong."""
        self.progress: dict[str, tuple[int, int]] = {}
        """By encoder: tools that have a vector, and all."""

    def tick(self) -> None:
        """Begin what there is to do, if nothing is being done."""
        assert self._wanted is not None
        if self._wanted.encoder == "none" or self.problem or not len(self._catalog):
            return
        if self._task is None or self._task.done():
            is_awaited = self._search.is_wanted and not self._search.has_encoders
            if self._done != self._search.corpus.version or is_awaited:
                self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """End what is being done."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _work(self) -> None:
        from foretool.retrieval.encoders import EncoderError

        wanted = self._wanted
        assert wanted is not None
        try:
            if self._weights is None:
                self._weights = wanted.weights()
            if not self._weights:
                self.problem = "no encoder is installed" if wanted.encoder != "none" else ""
                self._done = self._search.corpus.version
                return
            version = self._search.corpus.version
            weights = self._weights
            for each in weights:
                await self._embed(each, wanted)
            if wanted == self._wanted:
                await self._attach(weights, wanted)
                self._done = version
        except (EncoderError, OSError, StorageError) as error:
            self.problem = str(error)
            log.warning("%s; words alone rank", error)

    async def _embed(self, weights: Weights, wanted: Wanted) -> None:
        """Make the vectors that are missing."""

        vectors = self._store.vectors
        digests = {digest for digest in self._search.corpus.digests if digest}
        known = vectors.known(weights.key)
        missing = digests - known
        self.progress[weights.name] = (len(digests) - len(missing), len(digests))
        if not missing:
            return
        log.info("embedding %d of %d tools with %s", len(missing), len(digests), weights.name)
        texts = await self._texts(missing)
        new: dict[bytes, bytes] = {}
        async for digest, data in embedded(weights, texts, cache_folder(self._store), wanted.endpoint):
            new[digest] = data
            done, _ = self.progress[weights.name]
            self.progress[weights.name] = (done + 1, len(digests))
            if len(new) == SAVED_AT_ONCE:
                vectors.save(weights.key, new)
                new = {}
        vectors.save(weights.key, new)

    async def _texts(self, wanted: set[bytes]) -> dict[bytes, str]:
        """Their texts by hash, the shortest first: a batch is as long as its longest text."""
        found: dict[bytes, str] = {}
        for upstream in self._catalog.upstreams():
            found |= {key: text for key, text in self._read(upstream).items() if key in wanted}
            await asyncio.sleep(0)  # a server of hundreds of tools takes milliseconds
        return dict(sorted(found.items(), key=lambda item: len(item[1])))

    def _read(self, upstream: str) -> dict[bytes, str]:
        from foretool.retrieval.document import document, embedded_text
        from foretool.retrieval.pipeline import digest

        about = self._catalog.server_text(upstream)
        read = (embedded_text(document(tool, about)) for tool in self._catalog.of(upstream))
        return {digest(text): text for text in read}

    async def _attach(self, weights: Sequence[Weights], wanted: Wanted) -> None:
        from foretool.retrieval.encoders.ahead import Ahead
        from foretool.retrieval.rankers.dense import Meaning

        if not self._search.is_wanted:
            return
        meaning = self._meaning
        if meaning is None:
            encoders = await asyncio.to_thread(load, weights, cache_folder(self._store), wanted.endpoint)
            meaning = Meaning(encoders)
        corpus = self._search.corpus
        fill(meaning, weights, corpus.digests, self._store)
        meaning.align(corpus.digests, corpus.version)
        if self._meaning is None:
            log.info("ranking by meaning: %s", "; ".join(each.described for each in weights))
        self._meaning = meaning
        self._search.install_encoders(
            meaning, [head.encoder for head in meaning.heads if isinstance(head.encoder, Ahead)]
        )


async def embedded(
    weights: Weights, texts: Mapping[bytes, str], cache: Path | None, endpoint: Endpoint
) -> AsyncIterator[tuple[bytes, bytes]]:
    """Vectors by the hash of their text, as they come from a process of their own. Raises `EncoderError`."""
    from foretool.retrieval.encoders import EncoderError
    from foretool.retrieval.encoders.worker import KEY, URL

    command = (sys.executable, "-m", "foretool.retrieval.encoders.worker", weights.setting, str(cache or ""))
    pipe = asyncio.subprocess.PIPE
    environment = {**os.environ, URL: endpoint.url, KEY: endpoint.key}
    worker = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)
    assert worker.stdin and worker.stdout and worker.stderr
    feeding = asyncio.create_task(_feed(worker.stdin, texts.values()))
    complaints = asyncio.create_task(worker.stderr.read())
    try:
        header = await worker.stdout.readline()
        if header:
            size = 4 * int(json.loads(header)["dimension"])
            for digest in texts:
                yield digest, await worker.stdout.readexactly(size)
    except (asyncio.IncompleteReadError, ValueError):
        header = b""
    finally:
        feeding.cancel()
        if not worker.stdout.at_eof():  # else it is ending by itself, and killing would take its status from who waits
            with contextlib.suppress(ProcessLookupError):
                worker.kill()
        said = (await complaints).decode(errors="replace").strip()
        await worker.wait()
    if not header:
        raise EncoderError(f"encoder {weights.name!r}: {said.splitlines()[-1] if said else 'its process was ended'}")


async def _feed(stdin: asyncio.StreamWriter, texts: Iterable[str]) -> None:
    with contextlib.suppress(ConnectionError):
        for text in texts:
            stdin.write(json.dumps(text).encode() + b"\n")
            await stdin.drain()
        stdin.close()


def cache_folder(store: Store) -> Path | None:
    """Where prepared models are kept: beside the store."""
    return store.path.parent / "encoders" if isinstance(store.path, Path) else None


def load(weights: Sequence[Weights], cache: Path | None, endpoint: Endpoint) -> list[Encoder]:
    """The encoders, half a second; those that are slow to answer are asked ahead. Raises `EncoderError`."""
    from foretool.retrieval.encoders import open_encoder
    from foretool.retrieval.encoders.ahead import Ahead

    opened = [(each, open_encoder(each, cache, key=endpoint.key)) for each in weights]
    return [Ahead(encoder) if each.is_slow else encoder for each, encoder in opened]


def fill(meaning: Meaning, weights: Sequence[Weights], digests: Iterable[bytes], store: Store) -> None:
    """Take in the vectors that are kept."""

    wanted = {digest for digest in digests if digest}
    for head, each in zip(meaning.heads, weights, strict=True):
        if missing := head.missing(wanted):
            head.add(store.vectors.load(each.key, missing))


def attach(settings: Settings, store: Store, search: Search) -> str:
    """Give the ranking its encoders now, with the vectors that are kept; returns what stands in the way, or "" ."""
    from foretool.retrieval.encoders import EncoderError
    from foretool.retrieval.encoders.ahead import Ahead

    wanted = Wanted.of(settings)
    try:
        weights = wanted.weights()
        if not weights:
            return "no encoder is installed" if wanted.encoder != "none" else ""
        encoders = load(weights, cache_folder(store), wanted.endpoint)
    except (EncoderError, OSError) as error:
        return str(error)
    from foretool.retrieval.rankers.dense import Meaning

    meaning = Meaning(encoders)
    corpus = search.index_all()
    fill(meaning, weights, corpus.digests, store)
    meaning.align(corpus.digests, corpus.version)
    search.install_encoders(meaning, [each for each in encoders if isinstance(each, Ahead)])
    return "" if meaning.is_ready else "tools are not embedded yet; a proxy does so once a client has connected"
