"""Embeds every tool in the background, and installs the encoders into the search once somebody searches.

Well-known tools have a vector that comes with foretool. A short-lived process (`workers.py`) computes the others, and
the store keeps them, so that a text is embedded once for all proxies. This process opens an encoder only for the first
search in words, in a thread, and imports nothing heavy before that. That search waits a moment for it, also where a few
tools are still to be embedded. A tool without a vector is ranked by its words, and so is every tool where no weights
are installed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Final

from foretool.server.catalog.embedding_worker import EmbeddingWorker, WorkerChoice
from foretool.server.catalog.encoders import load_libraries
from foretool.server.config.settings import Settings
from foretool.server.transports.tasks import BackgroundWork
from foretool.storage.engine import Lead, StorageError
from foretool.storage.store import Store

if TYPE_CHECKING:
    from foretool.retrieval.corpus import Corpus
    from foretool.retrieval.document import Document
    from foretool.retrieval.encoders import Encoder, Weights
    from foretool.retrieval.known_vectors import KnownVectors
    from foretool.retrieval.rankers.dense import Dense, DenseEnsemble
    from foretool.server.catalog.catalog import Catalog
    from foretool.server.catalog.search import Search

SAVED_AT_ONCE: Final = 128
"""Vectors of one transaction; a killed worker loses at most as many."""

_SLICE_S: Final = 0.002
"""How long texts are read before other work gets its turn."""
SOON: Final = 100
"""So many tools are embedded within the time that a first search waits; on the first day it may wait for more in
vain."""

AT_ONCE: Final = 300
"""So many tools a command embeds itself, which takes some three seconds; with more, it leaves them to a proxy."""

OnEmbedded = Callable[[int, int], None]
"""Told how many of how many tools are embedded."""

_OPENED_S: Final = 2.0
"""What is expected of importing and opening an encoder on a busy machine, in seconds."""
_EMBEDDED_S: Final = 0.03
"""What is expected of embedding one tool, in seconds, before any is embedded."""

_STAYS_S: Final = 10.0
"""How long the process that embeds is kept for more tools: the servers of a new machine list one after the other."""

CHOICE: Final = ("encoder", "encoder_url", "encoder_key")
"""The settings that choose encoders."""

EMBEDDING: Final = "embedding"
"""The work whose lead one proxy of a store has."""
WAIT_S: Final = 1.0
"""Pause between two looks whether another proxy still embeds."""

log = logging.getLogger("foretool.embedding")


class KeptVectors:
    """The vectors of tools' texts: in the store, and in memory while the store refuses them. On a full disk, search by
    meaning then works until the proxy ends, and what was embedded is saved as soon as the store takes it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._unsaved: dict[str, dict[bytes, bytes]] = {}
        """By encoder: what the store has refused."""
        self.refused = ""
        """Why it did, the last time; "" while it takes everything."""

    def missing(self, encoder: str, digests: Collection[bytes]) -> set[bytes]:
        """Return the hashes of which no vector by this encoder is known; from any thread."""
        missing = set(digests)
        with suppress(StorageError):
            missing = self._store.vectors.missing(encoder, digests)
        return missing.difference(self._unsaved.get(encoder, ()))

    def load(self, encoder: str, digests: Collection[bytes]) -> dict[bytes, bytes]:
        """Return the known vectors by hash; from any thread."""
        unsaved = self._unsaved.get(encoder, {})
        found = {digest: unsaved[digest] for digest in digests if digest in unsaved}
        with suppress(StorageError):
            found |= self._store.vectors.load(encoder, digests)
        return found

    def save(self, encoder: str, vectors: Mapping[bytes, bytes]) -> None:
        """Keep vectors, with those that the store has refused before."""
        unsaved = {**self._unsaved.get(encoder, {}), **vectors}
        try:
            self._store.vectors.save(encoder, unsaved)
        except StorageError as error:
            self._unsaved[encoder], self.refused = unsaved, str(error)
        else:
            self._unsaved.pop(encoder, None)
            self.refused = ""


class Embedder(BackgroundWork):
    """Keeps the vectors of all tools up to date and the encoders installed; one task at a time does both."""

    def __init__(self, settings: Settings, catalog: Catalog, store: Store, search: Search) -> None:
        self._catalog = catalog
        self._store = store
        self._vectors = KeptVectors(store)
        self._search = search
        self._ensemble: DenseEnsemble | None = None
        self._opening: asyncio.Future[None] | None = None
        """What searches wait for."""
        self._is_long = False
        """Whether more tools are being embedded than a search may wait for."""
        self._begun_at, self._left_s = 0.0, 0.0
        """When the present work began, by `time.monotonic`, and how long it was to take from then on."""
        self._on_embedded: OnEmbedded = lambda done, total: None
        self._worker: EmbeddingWorker | None = None
        """The process that embedded last, and that has nothing to do."""
        self._worker_until = 0.0
        """Until when it is kept, by `time.monotonic`."""
        self._installing = asyncio.Lock()
        self._begin(settings)
        search.opening.connect(self.open_now, self.ready_in)

    def _begin(self, settings: Settings) -> None:
        self._settings = settings
        """The settings that chose the encoders; a new object means another choice."""
        self._weights: tuple[Weights, ...] | None = None
        self._done = -1
        """The version of the corpus whose tools all have a vector."""
        self.problem = ""
        """Why no encoder takes part, in words; empty while nothing is wrong."""

    @property
    def is_possible(self) -> bool:
        """Whether the settings choose encoders and none is known to fail."""
        return self._settings.encoder != "none" and not self.problem and len(self._catalog) > 0

    def ready_in(self) -> float | None:
        """Return in about how many seconds the encoders know every tool; None if they do, or never will."""
        corpus = self._search.indexed()
        is_done = self._ensemble is not None and corpus is not None and corpus.version == self._done
        if not self.is_possible or (is_done and not self.is_working):
            return None
        return max(self._begun_at + self._left_s - time.monotonic(), 1.0) if self.is_working else _OPENED_S

    @property
    def query_keys(self) -> tuple[str, ...]:
        """The keys under which vectors of queries are stored, one for each encoder in use, in their order."""
        return tuple(each.query_key for each in self._weights or ()) if self._ensemble is not None else ()

    def configure(self, settings: Settings) -> None:
        """Follow changed settings; nothing happens if they choose the same encoders."""
        if any(getattr(settings, name) != getattr(self._settings, name) for name in CHOICE):
            if self._ensemble is not None:
                self._ensemble = None
                self._search.install_encoders(None)
            self._begin(settings)

    def retry(self) -> None:
        """Try again after a problem that may be over: the store can be used again."""
        if self.problem:
            self.problem, self._done = "", -1

    def tick(self) -> None:
        """Begin the work there is, unless earlier work still goes on. Housekeeping calls this about once a second."""
        if self._worker is not None and not self.is_working and time.monotonic() >= self._worker_until:
            self.begin(self._end_worker())
        if not self.is_possible:
            return
        if not self.is_working:
            is_awaited = self._search.is_wanted and self._ensemble is None
            if self._done != self._search.update_corpus().version or is_awaited:
                self.begin(self._work())

    def open_now(self) -> asyncio.Future[None] | None:
        """Install the encoders and embed what is missing, for a search that wants them. Returns what ends once they
        are installed; where few tools are missing, once these are embedded too. None if there is nothing to wait for,
        or no encoder can take part."""
        if self.ready_in() is None or (self._is_long and self._ensemble is not None):
            return None
        self._search.is_wanted = True
        if not self.is_working:
            self._is_long = False
            self.begin(self._work())
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_future()
        return self._opening

    async def embed_all(self, on_embedded: OnEmbedded) -> None:
        """Embed every tool that the store has no vector of, for a command that has just listed them; `problem` says
        afterwards what went wrong, in words. Raises `StorageError` where the store takes none."""
        if self._settings.encoder != "none" and len(self._catalog):
            self._on_embedded = on_embedded
            self._search.update_corpus(inf)
            try:
                await self._work()
            finally:
                await self._end_worker()
            if self._vectors.refused:
                raise StorageError(self._vectors.refused)

    def _end_wait(self) -> None:
        """Let searches go on that wait for the encoders."""
        opening, self._opening = self._opening, None
        if opening is not None and not opening.done():
            opening.set_result(None)

    async def _work(self) -> None:
        from foretool.retrieval.encoders import EncoderError

        settings = self._settings
        try:
            # Servers of a new machine list one after the other, and a search waits for the tools of all of them.
            while await self._embed_missing(settings) and self._opening is not None:
                pass
        except (EncoderError, OSError) as error:  # a store that refuses keeps no lead
            self.problem = str(error)
            log.warning("%s; words alone rank", error)
        finally:
            self._is_long = False
            self._end_wait()

    async def _embed_missing(self, settings: Settings) -> bool:
        """Embed what has no vector yet. Returns whether there are more tools by now."""
        weights = self._weights = self._weights or await asyncio.to_thread(find_weights, settings)
        if not weights:
            self.problem = "no encoder is installed"
            return False
        corpus = self._search.update_corpus()
        version, digests = corpus.version, {digest for digest in corpus.digests if digest}
        missing = [await asyncio.to_thread(self._vectors.missing, each.key, digests) for each in weights]
        missing = [await self._take_shipped(each, theirs) for each, theirs in zip(weights, missing, strict=True)]
        count = sum(map(len, missing))
        self._is_long = count > SOON
        self._begun_at, self._left_s = time.monotonic(), _OPENED_S + _EMBEDDED_S * count
        opening = asyncio.create_task(self._install_wanted(weights, settings))  # meanwhile its process embeds
        try:
            for each, theirs in zip(weights, missing, strict=True):
                if theirs:
                    await self._embed(each, theirs, settings)
        finally:
            await opening
        await self._install_wanted(weights, settings)
        if settings is not self._settings:
            return False
        self._done = version
        return self._search.update_corpus().version != version

    async def _embed(self, weights: Weights, missing: set[bytes], settings: Settings) -> None:
        """Compute and keep the missing vectors; one proxy of a store at a time."""
        with self._store.lead(EMBEDDING) as lead:
            while not _may_lead(lead):
                await asyncio.sleep(WAIT_S)
                if self._is_awaited:
                    await self._install_wanted(self._weights or (), settings)
            # Another proxy has kept meanwhile what it had to embed.
            if missing := await asyncio.to_thread(self._vectors.missing, weights.key, missing):
                log.info("embedding %d of %d tools with %s", len(missing), len(self._catalog), weights.name)
                await self._compute(weights, missing, settings)

    async def _compute(self, weights: Weights, missing: set[bytes], settings: Settings) -> None:
        texts = await self._read_texts(missing)
        worker = await self._take_worker(weights, settings)
        try:
            await self._save_embedded(worker, weights, texts, settings)
            self._keep_worker(worker)
        finally:
            if worker is not self._worker:
                await worker.stop()

    async def _save_embedded(
        self, worker: EmbeddingWorker, weights: Weights, texts: Mapping[bytes, str], settings: Settings
    ) -> None:
        vectors = self._vectors
        new: dict[bytes, bytes] = {}
        done, next_install, first_at = 0, SAVED_AT_ONCE, 0.0
        async for digest, data in worker.embed(texts):
            new[digest] = data
            done += 1
            now = time.monotonic()
            first_at = first_at or now  # before that, the process imported and opened the encoder
            each_s = (now - first_at) / (done - 1) if done > 1 else _EMBEDDED_S
            self._left_s = now - self._begun_at + each_s * (len(texts) - done)
            self._on_embedded(done, len(texts))
            if len(new) == SAVED_AT_ONCE or self._is_awaited:
                vectors.save(weights.key, new)
                new = {}
                if self._is_awaited or done >= next_install:
                    next_install = 2 * done  # what is installed is gone through each time
                    await self._install_wanted(self._weights or (), settings)
        vectors.save(weights.key, new)

    async def _read_texts(self, digests: set[bytes]) -> dict[bytes, str]:
        """Return the texts with these hashes, by hash, shortest first: the longest text sets the length of its
        batch."""
        from foretool.retrieval.glossary import let_go

        found = {key: text async for key, text, _ in self._read(digests)}
        let_go()
        return dict(sorted(found.items(), key=lambda item: len(item[1])))

    async def _read(self, digests: set[bytes]) -> AsyncIterator[tuple[bytes, str, Document]]:
        """Read the tools whose texts have these hashes, some in each turn of the loop; yields hash, text and tool."""
        until = time.perf_counter() + _SLICE_S
        for key, text, document in texts_to_embed(self._search.update_corpus(), self._catalog):
            if key in digests:
                yield key, text, document
            if time.perf_counter() >= until:
                await asyncio.sleep(0)
                until = time.perf_counter() + _SLICE_S

    async def _take_shipped(self, weights: Weights, missing: set[bytes]) -> set[bytes]:
        """Keep the vectors that come with foretool for known ones of these tools. Returns the other tools."""
        known = await asyncio.to_thread(open_shipped_vectors, weights) if missing else None
        if known is None:
            return missing
        found = {key: vector async for key, _, tool in self._read(missing) if (vector := known.find(tool)) is not None}
        self._vectors.save(weights.key, found)
        return missing - found.keys()

    async def _take_worker(self, weights: Weights, settings: Settings) -> EmbeddingWorker:
        """Return a process that embeds with these weights; it is the caller's."""
        worker, self._worker = self._worker, None
        choice = WorkerChoice(weights.setting, settings.encoder_url, settings.encoder_key)
        if worker is not None and worker.choice != choice:
            await worker.stop()
            worker = None
        return worker or await EmbeddingWorker.start(choice)

    def _keep_worker(self, worker: EmbeddingWorker) -> None:
        self._worker, self._worker_until = worker, time.monotonic() + _STAYS_S

    async def _end_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.stop()

    async def stop(self) -> None:
        """Cancel the work under way, and end the process that embeds."""
        await super().stop()
        await self._end_worker()

    @property
    def _is_awaited(self) -> bool:
        """Whether a search wants encoders that are not installed."""
        return self._search.is_wanted and self._ensemble is None

    async def _install_wanted(self, weights: Sequence[Weights], settings: Settings) -> None:
        """If somebody has searched, rank with the vectors that the store has by now."""
        if self._search.is_wanted and settings is self._settings and weights:
            await self._install(weights, settings)
            if self._is_long:
                self._end_wait()

    async def _install(self, weights: Sequence[Weights], settings: Settings) -> None:
        async with self._installing:
            ensemble = self._ensemble
            if ensemble is None:
                ensemble = await asyncio.to_thread(open_ensemble, weights, settings.encoder_key)
                log.info("ranking by meaning: %s", "; ".join(each.described for each in weights))
            await self._attach(ensemble, weights)
            if settings is self._settings:
                self._ensemble = ensemble
                _serve(ensemble, self._search)

    async def _attach(self, ensemble: DenseEnsemble, weights: Sequence[Weights]) -> None:
        """Give the ensemble the vectors that the store keeps of the indexed tools."""
        digests = [digest for digest in self._search.update_corpus().digests if digest]
        for head, each in zip(ensemble.heads, weights, strict=True):
            head.add(await asyncio.to_thread(self._vectors.load, each.key, head.missing(digests)))


def texts_to_embed(corpus: Corpus, catalog: Catalog) -> Iterator[tuple[bytes, str, Document]]:
    """Yield for each tool the hash of the text to embed, that text, and the tool's document."""
    from foretool.retrieval.corpus import digest
    from foretool.retrieval.document import embedded_text

    for upstream in catalog.upstreams():
        about = catalog.texts.about(upstream)
        for tool in catalog.of(upstream):
            document = corpus.read(tool, about)[0]
            text = embedded_text(document)
            yield digest(text), text, document


def open_shipped_vectors(weights: Weights) -> KnownVectors | None:
    """Return the vectors of well-known tools that come with foretool; None where another encoder made them, or where
    their file is damaged: these tools are embedded like the others then."""
    from foretool.retrieval import known_vectors

    try:
        found = known_vectors.read_file()
    except (OSError, ValueError) as error:
        log.warning(
            "%s: %s; all tools are embedded here; to mend it, install foretool again", known_vectors.FILE, error
        )
        return None
    return found if found.encoder == weights.key else None


def _may_lead(lead: Lead) -> bool:
    try:
        return lead.take()
    except StorageError:
        return True  # where no file can be written, each proxy looks after itself


def find_weights(settings: Settings) -> tuple[Weights, ...]:
    """Return the encoders that the settings choose. Raises `EncoderError` if one is not installed."""
    from foretool.retrieval.encoders import Endpoint, resolve_weights

    return resolve_weights(settings.encoder, Endpoint(settings.encoder_url, settings.encoder_key))


def open_encoders(weights: Sequence[Weights], key: str) -> list[Encoder]:
    """Open encoders, which takes half a second; those that answer slowly are asked ahead. Raises `EncoderError`."""
    from foretool.retrieval.encoders.slow import Ahead
    from foretool.server.catalog.encoders import open_any_encoder

    opened = [(each, open_any_encoder(each, key=key)) for each in weights]
    return [Ahead(encoder) if each.is_slow else encoder for each, encoder in opened]


def open_ensemble(weights: Sequence[Weights], key: str) -> DenseEnsemble:
    """Open encoders and import all that ranks with them; from any thread. Raises `EncoderError`."""
    load_libraries()
    from foretool.retrieval import score_sum
    from foretool.retrieval.rankers.dense import DenseEnsemble

    assert score_sum  # the first ranking needs it, and would import it on the loop
    return DenseEnsemble(open_encoders(weights, key))


def _load_vectors(ensemble: DenseEnsemble, weights: Sequence[Weights], search: Search, store: Store) -> None:
    """Give the ensemble the vectors that the store keeps of the indexed tools, and rank with it."""
    digests = {digest for digest in search.update_corpus().digests if digest}
    for head, each in zip(ensemble.heads, weights, strict=True):
        head.add(KeptVectors(store).load(each.key, head.missing(digests)))
    _serve(ensemble, search)


def _serve(ensemble: DenseEnsemble, search: Search) -> None:
    from foretool.retrieval.encoders.slow import Ahead

    corpus = search.update_corpus()
    ensemble.align(corpus.digests, corpus.version, corpus.servers)
    search.install_encoders(ensemble, [head.encoder for head in ensemble.heads if isinstance(head.encoder, Ahead)])


def serve_encoders(
    weights: Sequence[Weights], encoders: Sequence[Encoder], search: Search, store: Store, catalog: Catalog
) -> None:
    """Install opened encoders now, and embed what the store has no vector of; nothing is kept. Raises
    `EncoderError`."""
    from foretool.retrieval.rankers.dense import DenseEnsemble

    search.update_corpus(inf)
    ensemble = DenseEnsemble(encoders)
    _load_vectors(ensemble, weights, search, store)
    _embed_missing(ensemble, search, catalog, inf)


def install_encoders(
    settings: Settings, search: Search, store: Store, catalog: Catalog
) -> dict[str, dict[bytes, bytes]]:
    """Open and install the encoders now, for a command; words alone rank where that fails.

    Embeds up to `AT_ONCE` tools that the store has no vector of, unless a service embeds. Returns their vectors by the
    key of the encoder, for whoever may write the store.
    """
    from foretool.retrieval.encoders import EncoderError

    try:
        if not (weights := find_weights(settings)) or not len(catalog):
            return {}
        from foretool.retrieval.rankers.dense import DenseEnsemble

        search.update_corpus(inf)
        ensemble = DenseEnsemble(open_encoders(weights, settings.encoder_key))
        _load_vectors(ensemble, weights, search, store)
        if any(each.is_slow for each in weights):
            return {}
        shipped = [
            _add_shipped(each, head, search, catalog) for each, head in zip(weights, ensemble.heads, strict=True)
        ]
        computed = _embed_missing(ensemble, search, catalog, AT_ONCE)
        _serve(ensemble, search)
        new = zip(weights, shipped, computed, strict=True)
        return {each.key: {**theirs, **ours} for each, theirs, ours in new if theirs or ours}
    except (EncoderError, OSError):
        return {}


def _add_shipped(weights: Weights, head: Dense, search: Search, catalog: Catalog) -> dict[bytes, bytes]:
    """Give an encoder the vectors of well-known tools that come with foretool and that it lacks. Returns them."""
    corpus = search.update_corpus(inf)
    missing = head.missing(each for each in corpus.digests if each)
    known = open_shipped_vectors(weights) if missing else None
    if known is None:
        return {}
    tools = ((key, tool) for key, _, tool in texts_to_embed(corpus, catalog) if key in missing)
    found = {key: vector for key, tool in tools if (vector := known.find(tool)) is not None}
    head.add(found)
    return found


def _embed_missing(ensemble: DenseEnsemble, search: Search, catalog: Catalog, most: float) -> list[dict[bytes, bytes]]:
    """Embed the tools that an encoder has no vector of, if there are at most `most`; returns the vectors by encoder.
    Raises `EncoderError`."""
    corpus = search.update_corpus(inf)
    wanted = {each for each in corpus.digests if each}
    texts: dict[bytes, str] = {}
    new: list[dict[bytes, bytes]] = [{} for _ in ensemble.heads]
    for head, vectors in zip(ensemble.heads, new, strict=True):
        missing = head.missing(wanted)
        if not 0 < len(missing) <= most:
            continue
        if not texts:
            texts = {key: text for key, text, _ in texts_to_embed(corpus, catalog)}
        known = [each for each in missing if each in texts]
        for start in range(0, len(known), SAVED_AT_ONCE):
            part = known[start : start + SAVED_AT_ONCE]
            rows = head.encoder.documents([texts[each] for each in part])
            vectors |= {each: row.tobytes() for each, row in zip(part, rows, strict=True)}
        head.add(vectors)
    if any(new):
        ensemble.align(corpus.digests, corpus.version, corpus.servers)
    return new
