"""Reads learned models from the store, checks and opens them, and installs them into the search.

A running proxy does so once a client has a list, and again whenever other models are to serve. A model that is damaged
or has another version is refused, and the model that it had replaced serves in its place. This module imports nothing
heavy until there is a model to open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from foretool.retrieval import methods
from foretool.server.transports.tasks import BackgroundWork
from foretool.storage.engine import StorageError
from foretool.storage.records import Artifact
from foretool.storage.sql.artifacts import ArtifactStore
from foretool.storage.store import Store

if TYPE_CHECKING:
    from foretool.retrieval.rankers.learned import LearnedModel, LearnedModels
    from foretool.server.catalog.search import Search

WEIGHTS: Final = "weights"
"""The kind of the refitted weights; its bytes are JSON (`rankers.learned.Factors`)."""
_WAY_OUT = "pip install 'foretool[models]'"

Candidates = Sequence[tuple[Artifact, bytes]]
"""The models of one kind with their bytes, in the order in which to try them."""

log = logging.getLogger("foretool.models")


class OpenedModels(Struct, frozen=True):
    """The models that are in use, the record of each, and why others are not."""

    learned: LearnedModels | None
    served: dict[str, Artifact]
    problems: tuple[str, ...]


class ModelLoader(BackgroundWork):
    """Installs the models that are to serve, one load at a time. Housekeeping calls `tick` about once a second."""

    def __init__(self, search: Search, store: Store, changed: Callable[[], None]) -> None:
        """`changed` is called when other models serve than before, or a learning run has ended."""
        self._search = search
        self._store = store
        self._changed = changed
        self._version = 0
        self._has_listed = False

    def tick(self, has_listed: bool) -> None:
        """Look for other models; those in use stay where the store cannot be read. `has_listed`: a client has a list,
        so no client waits for its first one any more."""
        self._has_listed |= has_listed
        if not self._has_listed or self.is_working:
            return
        version = self._store.artifacts.version
        if version == self._version:
            return
        kept, wordings = read_models(self._store), read_wordings(self._store)
        self.begin(self._load(version, kept, wordings))

    async def _load(
        self, version: int, kept: Mapping[str, Candidates], wordings: Mapping[bytes, tuple[str, ...]]
    ) -> None:
        opened = await asyncio.to_thread(open_models, kept)
        for problem in opened.problems:
            log.warning("%s", problem)
        self._version = version
        self._search.install_models(opened.learned)
        self._search.install_wordings(wordings)
        if opened.served:
            log.info("learned: %s", ", ".join(f"{kind} {each.number}" for kind, each in opened.served.items()))
        self._changed()


def install_models(search: Search, store: Store) -> tuple[str, ...]:
    """Open and install the models now, for a command; returns in words why some do not serve."""
    opened = open_models(read_models(store))
    search.install_models(opened.learned)
    return opened.problems


def install_wordings(search: Search, store: Store) -> None:
    """Rank with the wordings that a language model wrote for tools (`learning.enrichment`). Raises `StorageError`."""
    search.install_wordings(read_wordings(store))


def read_wordings(store: Store) -> dict[bytes, tuple[str, ...]]:
    """Return the wordings by the hash of the text that a model was given. Raises `StorageError`."""
    return {each.digest: each.texts for each in store.wordings.all() if each.texts}


def read_models(store: Store) -> dict[str, Candidates]:
    """Return the candidates of every kind that takes part in ranking. Raises `StorageError`."""
    artifacts = store.artifacts
    ranking = {*methods.METHODS, WEIGHTS}
    return {kind: artifacts.load_intact(kind) for kind in artifacts.served() if kind in ranking}


def open_models(kept: Mapping[str, Candidates]) -> OpenedModels:
    """Open for each kind the first model that works, importing what its method needs. Never raises: `problems` says
    what is wrong with the others."""
    if not kept:
        return OpenedModels(None, {}, ())
    try:
        from foretool.retrieval.model_format import ModelError
        from foretool.retrieval.rankers.learned import Factors, LearnedModels
    except ImportError as error:
        return OpenedModels(None, {}, (f"what was learned is not served: {error.name} is missing; {_WAY_OUT}",))
    opened: dict[str, LearnedModel] = {}
    factors = Factors()
    served: dict[str, Artifact] = {}
    problems: list[str] = []
    for kind, candidates in kept.items():
        if not candidates:
            problems.append(f"{kind}: every copy that is kept is damaged; `foretool learn` makes a new one")
        for artifact, data in candidates:
            try:
                if kind == WEIGHTS:
                    factors = msgspec.json.decode(data, type=Factors)
                else:
                    opened[kind] = open_model(kind, data)
            except (ModelError, msgspec.MsgspecError) as error:
                problems.append(f"{kind} {artifact.number} is refused: {error}")
            except ImportError as error:
                problems.append(f"{kind} is not served: {error.name} is missing; {_WAY_OUT}")
                break
            else:
                served[kind] = artifact
                break
    trained_with = {kind: each.report.get("encoders", "") for kind, each in served.items()}
    learned = LearnedModels(opened, factors, trained_with) if opened else None
    return OpenedModels(learned, served, tuple(problems))


def open_model(kind: str, data: bytes) -> LearnedModel:
    """Open one model. Raises `ModelError`, and `ImportError` if a package that it needs is not installed."""
    model: LearnedModel = methods.import_object(methods.METHODS[kind].served).loads(data)
    return model


def last_run(artifacts: ArtifactStore) -> int:
    """Return the number of the last learning run; 0 if nothing was learned or the store does not answer."""
    try:
        return artifacts.version
    except StorageError:
        return 0
