"""Gives the ranking what was learned, as soon as somebody has a list, and anew whenever other models are to be served.

Models are read from the store, checked, and opened in a thread; one that is damaged or of another version is refused,
and the one it had replaced serves in its place. Nothing here is heavy until there is a model to open.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from foretool.storage.records import Artifact
from foretool.storage.stores import StorageError, Store

if TYPE_CHECKING:
    from foretool.retrieval.list_growth import Growth
    from foretool.retrieval.model_format import Learned
    from foretool.retrieval.rankers.learned import Experience
    from foretool.server.catalog.search import Search

CLASSES: Final[Mapping[str, str]] = {
    "dtdr": "foretool.retrieval.rankers.dtdr:Dtdr",
    "tgr": "foretool.retrieval.rankers.tgr:Tgr",
    "masstool": "foretool.retrieval.rankers.masstool:MassTool",
    "ports": "foretool.retrieval.rankers.ports:Ports",
}
"""Who reads the models of each method."""
WEIGHTS: Final = "weights"
"""The kind of the refitted weights; its bytes are JSON (`rankers.experience.Factors`)."""
PRIOR: Final = "prior"
"""The kind of what lists are made from; its bytes are JSON (`retrieval.prior`)."""
GROWTH: Final = "growth"
"""The kind of how lists grow; its bytes are JSON (`retrieval.growth`). It counts for the models it was fitted with."""
RETRY_TICKS: Final = 30
"""Ticks between two looks at a store that could not be read."""

Kept = Mapping[str, Sequence[tuple[Artifact, bytes]]]
"""Models with their bytes by kind, in the order in which to try them."""

log = logging.getLogger("foretool.models")


class Opened(Struct, frozen=True):
    """What came of the models that are kept."""

    experience: Experience | None
    served: dict[str, Artifact]
    problems: tuple[str, ...]


class Models:
    """See the module. `tick` is called about once a second; one task at a time."""

    def __init__(self, search: Search, store: Store, changed: Callable[[], None]) -> None:
        """`changed` is called when other models serve than before, or a learning run has ended."""
        self._search = search
        self._store = store
        self._changed = changed
        self._task: asyncio.Task[None] | None = None
        self._version = 0
        self._wait = 0
        self._has_listed = False
        self.served: dict[str, Artifact] = {}
        self.problems: tuple[str, ...] = ()
        """What keeps a model from being served, in words."""

    def tick(self, has_listed: bool) -> None:
        """Look whether there is something new; `has_listed`: somebody has a list now, so nobody waits for the first."""
        self._has_listed |= has_listed
        if not self._has_listed or (self._task is not None and not self._task.done()):
            return
        if self._wait:
            self._wait -= 1
            return
        try:
            version = self._store.artifacts.version
            if version == self._version:
                return
            kept = read(self._store)
        except StorageError as error:
            log.warning("%s; the models in use stay", error)
            self._wait = RETRY_TICKS
            return
        self._task = asyncio.create_task(self._take(version, kept))

    async def stop(self) -> None:
        """End what is being done."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _take(self, version: int, kept: Kept) -> None:
        opened = await asyncio.to_thread(open_models, kept) if kept else Opened(None, {}, ())
        for problem in opened.problems:
            log.warning("%s", problem)
        self._version, self.served, self.problems = version, opened.served, opened.problems
        self._search.install_models(opened.experience)
        if opened.served:
            log.info("learned: %s", ", ".join(f"{kind} {each.number}" for kind, each in opened.served.items()))
        self._changed()


def read(store: Store) -> dict[str, list[tuple[Artifact, bytes]]]:
    """Everything that is to be served, with what it replaced."""
    artifacts = store.artifacts
    return {kind: artifacts.load_intact(kind) for kind in artifacts.served() if kind in (*CLASSES, WEIGHTS, GROWTH)}


def open_models(kept: Kept) -> Opened:
    """The models of these bytes; imports what they need. Never raises for what a model may be."""
    try:
        from foretool.retrieval.model_format import ModelError
        from foretool.retrieval.rankers.learned import Experience, Factors
    except ImportError as error:
        return Opened(None, {}, (f"what was learned is not served: {error.name} is missing; {_WAY_OUT}",))
    models: dict[str, Learned] = {}
    served: dict[str, Artifact] = {}
    problems: list[str] = []
    factors = Factors()
    for kind, candidates in kept.items():
        if not candidates:
            problems.append(f"{kind}: every copy that is kept is damaged; `foretool learn` makes a new one")
        for artifact, data in candidates:
            try:
                if kind == WEIGHTS:
                    factors = msgspec.json.decode(data, type=Factors)
                elif kind == GROWTH:
                    continue  # once it is known which models serve
                else:
                    models[kind] = open_model(kind, data)
            except (ModelError, msgspec.MsgspecError) as error:
                problems.append(f"{kind} {artifact.number} is refused: {error}")
            except ImportError as error:
                problems.append(f"{kind} is not served: {error.name} is missing; {_WAY_OUT}")
                break
            else:
                served[kind] = artifact
                break
    fitting = _fitting(kept.get(GROWTH, ()), served)
    if fitting is not None:
        served[GROWTH] = fitting[0]
    growth = fitting[1] if fitting is not None else None
    trained_with = {kind: each.report.get("encoders", "") for kind, each in served.items()}
    experience = Experience(models, factors, growth, trained_with) if models else None
    return Opened(experience, served, tuple(problems))


def numbers(served: Mapping[str, Artifact]) -> dict[str, int]:
    """The number of each model that takes part in scores."""
    return {kind: each.number for kind, each in served.items() if kind in (*CLASSES, WEIGHTS)}


_WAY_OUT = "pip install 'foretool[models]'"


def open_model(kind: str, data: bytes) -> Learned:
    """Raises `ModelError`, and `ImportError` where something is not installed."""
    module, _, name = CLASSES[kind].partition(":")
    made: Learned = getattr(import_module(module), name).loads(data)
    return made


def prior(store: Store) -> tuple[int, bytes]:
    """Number of the last learning run, and what it says of coming tasks; (0, b"") where nothing was learned, or the
    store does not answer."""
    artifacts = store.artifacts
    try:
        version = artifacts.version
        whole = artifacts.load_intact(PRIOR) if version else []
    except StorageError:
        return 0, b""
    return version, whole[0][1] if whole else b""


def base(store: Store) -> int | None:
    """Tokens that a growing list begins with, by what was learned with the models that serve; None where nothing was,
    or the store does not answer."""
    artifacts = store.artifacts
    try:
        whole = artifacts.load_intact(GROWTH)
        served = artifacts.served()
    except StorageError:
        return None
    fitting = _fitting(whole, served)
    return fitting[1].base if fitting is not None else None


def _fitting(
    candidates: Sequence[tuple[Artifact, bytes]], served: Mapping[str, Artifact]
) -> tuple[Artifact, Growth] | None:
    """The newest way to grow that was fitted with the models that serve; other models give other scores, of which it
    says nothing."""
    if not candidates:
        return None
    # Not at the top: a list that is restored is served before this is wanted.
    from foretool.retrieval import list_growth as growths

    for artifact, data in candidates:
        with contextlib.suppress(msgspec.MsgspecError):
            growth = growths.loads(data)
            if growth.models == numbers(served):
                return artifact, growth
    return None


def attach(search: Search, store: Store) -> tuple[str, ...]:
    """Give the ranking what was learned now; returns what stands in the way."""
    kept = read(store)
    if not kept:
        return ()
    opened = open_models(kept)
    search.install_models(opened.experience)
    return opened.problems
