"""Runs learning once: from the log and demonstrations to models that serve, each promoted only if it ranks better.

Each method is judged on later tasks in two parts, forward in time: a model trained on everything before a part ranks
its tasks, and so do the models in use, which have not seen these tasks either. If the new model is better outside the
error of that comparison, it is trained once more on everything and serves from then on; otherwise only its report is
kept.

A run has a process of its own (`foretool learn`, or a child of `serve`); only this folder imports `retrieval.training`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from foretool.learning.checkpoints import Checkpoints, describe_done, is_unfinished
from foretool.learning.encoded_texts import EMBED_S, EncodedTexts
from foretool.learning.list_fill import WholeLists
from foretool.learning.results import MethodResult, Results, Say
from foretool.learning.sampling import (
    LIMITS,
    People,
    SampleLimits,
    choose_episodes,
    clean_episodes,
    clean_missed,
    read_sample,
    sharing,
)
from foretool.learning.timeline import KnownModels, Timeline, drop_calls, read_missed, rename_calls, trusted_tools
from foretool.retrieval import methods as register
from foretool.server.catalog import models
from foretool.server.config.loader import Config
from foretool.server.learning_schedule import LEARNING
from foretool.storage.engine import Lead, StorageError
from foretool.storage.places import ServerAddress, StorePlace
from foretool.storage.records import Artifact, Episode, Holder
from foretool.storage.store import Store

if TYPE_CHECKING:
    from foretool.learning.methods import MethodPromotion
    from foretool.learning.replay import Replay
    from foretool.learning.training import Material, Method
    from foretool.server.catalog.catalog import Catalog

RUN: Final = "run"
"""The kind under which the report of a whole run is kept."""

_EMBEDDING: Final = "tasks"
"""Under this name a run says how many words of tasks it has embedded."""


class RunResult(Struct, frozen=True, rename={"results": "lessons"}):
    at: float
    episodes: int
    imported: int
    results: tuple[MethodResult, ...]
    took_s: float
    waiting: int = 0
    """Tasks that were left out: the next run embeds their words."""
    gone: int = 0
    """Tasks that were left out: no tool that they called is there any more."""
    unshared: int = 0
    """Tasks that were left out: their people's work may not be learned from."""


class Busy(Exception):
    """Another process is learning from the same store, so this one cannot."""


def learn(
    config: Config,
    catalog: Catalog,
    store: Store,
    say: Say,
    *,
    methods: Sequence[str] = (),
    now: float | None = None,
    limits: SampleLimits = LIMITS,
) -> RunResult:
    """Train, replay and promote, `methods` alone if any are named. Raises `Busy` and `StorageError`."""
    at = time.time() if now is None else now
    lead = store.lead(LEARNING)
    if not lead.take():
        raise Busy(describe_busy(lead.holder()))
    with lead:
        started = time.perf_counter()
        file = SameStore(store.path, lead)

        def report(kind: str, what: str, share: float) -> None:
            file.check()
            lead.beat(f"{kind}: {what}")
            say(kind, what, share)

        learner = Learner(config, catalog, store, report, at, file.check, limits)
        results = tuple(learner.results(methods))
        file.check()
        took_s = round(time.perf_counter() - started, 1)
        run = RunResult(
            at,
            len(learner.timeline),
            learner.timeline.imported,
            results,
            took_s,
            learner.waiting,
            learner.gone,
            learner.unshared,
        )
        with store.atomic():  # a run that has ended and that nobody is told of would never be served
            store.artifacts.add(RUN, b"", msgspec.to_builtins(run), promote=False, at=at)
            store.artifacts.bump_version()
        learner.checkpoints.clear()
    return run


def describe_busy(holder: Holder | None) -> str:
    """Say who learns, since when, and whether it still does something."""
    who = "another process is learning from this store"
    if holder is None:
        return f"{who}; wait for it, or see `foretool learn --report`"
    since = time.strftime("%H:%M", time.localtime(holder.since))
    where = f" on {holder.machine}" if holder.machine else ""
    doing = f", at {holder.doing}" if holder.doing else ""
    silent = max(time.time() - holder.at, 0.0)
    return f"{who} (process {holder.pid}{where}, since {since}{doing}, last heard of {silent:.0f} s ago); wait for it"


class SameStore:
    """Notices that another storage file has taken the place of the one that is open, or that another process may learn
    by now: nothing may be written then."""

    def __init__(self, place: StorePlace | str, lead: Lead) -> None:
        self._place = place
        self._lead = lead
        self._first = self._identify()

    def _identify(self) -> tuple[int, int] | None:
        try:
            found = self._place.stat() if isinstance(self._place, Path) else None
        except OSError:
            return None
        return (found.st_dev, found.st_ino) if found is not None else None

    def check(self) -> None:
        """Raise `StorageError` if the file was removed or replaced, or the lead was lost with the connection."""
        if isinstance(self._place, ServerAddress) and not self._lead.is_held:
            raise StorageError(
                f"{self._place}: the connection was lost while learning; nothing more was written; run `foretool learn`"
            )
        if self._identify() != self._first:
            raise StorageError(
                f"{self._place}: removed or replaced while learning; nothing more was written; run `foretool learn`"
            )


class Learner:
    """Builds what a run needs from one store, and lets each method learn in turn."""

    def __init__(
        self,
        config: Config,
        catalog: Catalog,
        store: Store,
        say: Say,
        now: float,
        check: Callable[[], None] = lambda: None,
        limits: SampleLimits = LIMITS,
    ) -> None:
        """`check` raises `StorageError` if nothing may be written any more."""
        self._now = now
        self._continued: dict[str, Artifact] = {}
        """What an ended run had learned, by kind."""
        self.config = config
        self.catalog = catalog
        self.store = store
        self.say = say
        self._tools = trusted_tools(store, catalog.tools(), catalog.overrides.apply)
        self.upstream_of = {tool.id: tool.upstream for tool in self._tools}
        artifacts = store.artifacts
        imported, logged = read_sample(store, now, self.upstream_of, limits)
        # They were called by the names of their time; the user may have given other ones since.
        imported, logged = (rename_calls(each, catalog.find) for each in (imported, logged))
        people: People = store.sessions.people()
        every = len(logged)
        logged = choose_episodes(logged, people)
        self.unshared = every - len(logged)
        """Tasks of people whose work may not be learned from."""
        clean = sharing(logged, people, config.settings.share_words)
        logged = clean_episodes(logged, clean)
        self.texts = EncodedTexts.open(config.settings, store)
        self.waiting = 0
        """Tasks whose words the next run embeds."""
        self._unread: list[Episode] = []
        """Those of them whose tools are still there."""
        imported, logged = self._embed(imported, logged)
        self.timeline = Timeline(imported, logged, self.upstream_of, artifacts.count_demonstrations())
        self.gone = len(imported) + len(logged) - len(self.timeline)
        """Tasks that called no tool which is still there."""
        self._missed = clean_missed(read_missed(store, self.upstream_of, people), clean)
        self.results_of_run = Results(artifacts, self.timeline.stamp(), encoder_names(self.texts), now, check)
        self.checkpoints = Checkpoints(store.path, artifacts, self.timeline, RUN)

    def _embed(self, imported: list[Episode], logged: list[Episode]) -> tuple[list[Episode], list[Episode]]:
        """Return the tasks whose words have vectors, after as many were embedded as a run may embed. A run that goes on
        after an ended one embeds none, so that it reads the same tasks."""
        if self.texts is None:
            return imported, logged
        spend_s = 0.0 if is_unfinished(self.store.artifacts.history(), RUN, self.texts.names, self._now) else EMBED_S
        both = [*imported, *logged]
        chosen = self.texts.choose(both, spend_s, lambda share: self.say(_EMBEDDING, "reading the tasks", share))
        self.waiting = len(both) - len(chosen)
        kept = set(map(id, chosen))
        self._unread = drop_calls([each for each in both if id(each) not in kept], self.upstream_of)
        return [each for each in imported if id(each) in kept], [each for each in logged if id(each) in kept]

    def results(self, methods: Sequence[str] = ()) -> Iterator[MethodResult]:
        """Yield what comes of lists, of each method, and of the weights; of `methods` alone if named."""
        done = self._continued = self._done() if not methods else {}
        yield WholeLists(self.store).learn(self.say)
        for kind, trained in register.METHODS.items():
            if methods and kind not in methods:
                continue
            try:
                method: Method = register.import_object(trained.training)
            except ImportError as error:
                reason = f"{error.name} is missing; pip install 'foretool[models]'"
                yield MethodResult(kind, "skipped", reason)
                continue
            yield self._continue(done[kind]) if kind in done else self._promotion.learn(kind, method, self.say)
        known = self.known
        if known and (not methods or models.WEIGHTS in methods):
            from foretool.learning.replay import refit_weights

            if models.WEIGHTS in done:
                yield describe_done(done[models.WEIGHTS])
            else:
                yield refit_weights(self.timeline, self.replay, known, self.results_of_run, self.say)

    def _done(self) -> dict[str, Artifact]:
        """Return what a run that was ended had learned, as far as this run can go on from there."""
        done = self.checkpoints.done(self.results_of_run.stamp, self._now)
        for kind, each in list(done.items()):
            if kind in register.METHODS and each.promoted_at and self.checkpoints.trials(each) is None:
                del done[kind]
        if not done:
            self.checkpoints.clear()
        return done

    def _continue(self, artifact: Artifact) -> MethodResult:
        """Go on after a method that an ended run had finished."""
        if artifact.promoted_at:
            self._promotion.remember(artifact.kind, self.checkpoints.trials(artifact) or ())
        return describe_done(artifact)

    @cached_property
    def known(self) -> KnownModels:
        """Return the models in use whose vectors the encoders in use can compute."""
        known = KnownModels()
        opened = models.open_models(models.read_models(self.store))
        for kind, model in opened.learned.models.items() if opened.learned is not None else ():
            # A model of the ended run has seen every task; those that it was judged by stand for it.
            is_new = kind in self._continued and self._continued[kind].number == opened.served[kind].number
            if not is_new and self.results_of_run.comparable(kind) is not None:
                known.add(kind, self.timeline.place_after(opened.served[kind]), model)
        return known

    # What follows needs numpy, so it is imported only once there is a method to train.

    @cached_property
    def replay(self) -> Replay:
        from foretool.learning.replay import Replay
        from foretool.server.catalog.search_index import Index

        index = Index(self.catalog, with_shipped=self.config.settings.shipped_wordings)
        index.take_wordings(models.read_wordings(self.store))
        return Replay(self.catalog, self.texts, self.timeline, self.upstream_of, index=index)

    @cached_property
    def _promotion(self) -> MethodPromotion:
        from foretool.learning.methods import MethodPromotion

        return MethodPromotion(
            self.timeline, self.replay, self.known, self.results_of_run, self._material_before,
            self.checkpoints,
        )  # fmt: skip

    def _material_before(self, place: int) -> Material:
        from foretool.learning.language_models import scorer_of_environment
        from foretool.learning.training import Material

        texts = self.texts
        return Material(
            tools=tuple(self._tools),
            episodes=tuple(self.timeline.episodes[:place]),
            unread=tuple(self.timeline.earlier(self._unread, place)),
            server_texts={name: self.catalog.texts.about(name) for name in self.catalog.upstreams()},
            documents=texts.documents if texts else None,
            queries=texts.queries if texts else None,
            flows=tuple(self.store.flows.all()),
            missed=tuple(self.timeline.missed_before(place, self._missed)),
            open_scorer=scorer_of_environment,
        )


def encoder_names(texts: EncodedTexts | None) -> str:
    """Return the names of the encoders in use, joined by `+`; "" without one."""
    return texts.names if texts else ""
