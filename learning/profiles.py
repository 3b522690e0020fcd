"""Learns for one profile, from its own tasks, what serves there in place of what was learned from the tasks of all.

A profile learns once it has `LEAST` tasks, if others have tasks too; without enough of them it is served what is for
all. Each method is judged on later tasks of the profile against what is for all, each as it was before it could have
seen them, and promoted only if it ranks better. A model of the profile that no longer does is put away.

A model of a profile has seen no other task, and no word that fewer than `share_words` people of the profile have used.
It reaches the rankings of that profile alone. Method `ports` stays for all: each of its models is an encoder.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec.structs import replace

from foretool.learning.list_growth import ListGrowth
from foretool.learning.list_prior import ListPrior
from foretool.learning.methods import MethodPromotion, NoCheckpoints, is_promoted
from foretool.learning.missed import read_missed
from foretool.learning.replay import Replay, describe_gain, describe_no_gain, refit_weights
from foretool.learning.results import MethodResult, Results
from foretool.learning.shared_words import People, clean_episodes, clean_missed, session_of, sharing
from foretool.learning.timeline import KnownModels, Timeline
from foretool.learning.training import TooLittle
from foretool.retrieval import methods as register
from foretool.server.catalog import models
from foretool.server.catalog.first_tools import FirstTools
from foretool.server.catalog.models import kind_of
from foretool.storage.records import Artifact
from foretool.storage.stores import ArtifactStore

if TYPE_CHECKING:
    from foretool.learning.encoded_texts import EncodedTexts
    from foretool.learning.list_fill import ListSize
    from foretool.learning.results import Say
    from foretool.learning.training import Material, Method
    from foretool.server.catalog.catalog import Catalog
    from foretool.server.config.loader import Config
    from foretool.storage.records import Episode, MissedNeed, ToolId
    from foretool.storage.stores import Store

LEAST: Final = 50
"""Tasks from which on a profile learns for itself."""
MOST: Final = 8
"""So many profiles learn for themselves, those with the most tasks: every replica holds the models of all of them."""
FOR_ALL: Final = frozenset({"ports"})
"""The methods that learn for all alone."""


class ForAll(Protocol):
    """What has learned for all from the same log (`run.Learner`)."""

    config: Config
    catalog: Catalog
    store: Store
    say: Say
    people: People
    timeline: Timeline
    size: ListSize
    texts: EncodedTexts | None
    upstream_of: dict[ToolId, str]
    results_of_run: Results

    @property
    def known(self) -> KnownModels: ...
    @property
    def replay(self) -> Replay: ...
    @property
    def prompted(self) -> frozenset[str]: ...
    def embed(self, episodes: list[Episode]) -> list[Episode]: ...
    def material_of(self, timeline: Timeline, missed: Sequence[MissedNeed], place: int) -> Material: ...


def learn_profiles(learner: ForAll, methods: Sequence[str] = ()) -> Iterator[MethodResult]:
    """Yield what comes of each profile that has enough tasks, after `learner` has learned for all; of `methods` alone
    if named."""
    sessions = {session_of(each) for each in learner.timeline.episodes if each.source != "import"}
    profile_of = learner.store.sessions.profiles(sessions)
    for profile in choose_profiles(learner.timeline, profile_of):
        if profile in learner.config.profiles:
            yield from ProfileLearner(learner, profile, profile_of).results(methods)


def choose_profiles(timeline: Timeline, profile_of: Mapping[str, str]) -> list[str]:
    """Return the profiles that learn for themselves, that with the most tasks first; none where one has all tasks."""
    found = (profile_of.get(session_of(each)) for each in timeline.episodes if each.source != "import")
    counts = Counter(profile for profile in found if profile is not None)
    if len(counts) < 2:
        return []
    return [profile for profile, count in counts.most_common(MOST) if count >= LEAST]


class ProfileArtifacts:
    """The artifacts as one profile reads and writes them: `active` is its own, and what is for all serves beside it."""

    def __init__(self, artifacts: ArtifactStore, profile: str) -> None:
        self._artifacts = artifacts
        self._profile = profile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._artifacts, name)

    def add(
        self, kind: str, data: bytes, report: dict[str, Any], *, promote: bool, at: float | None = None
    ) -> Artifact:
        """Keep a model of the profile, and serve it if `promote`."""
        return self._artifacts.add(kind_of(kind, self._profile), data, report, promote=promote, at=at)

    def active(self, kind: str) -> Artifact | None:
        """Return the profile's own model that serves."""
        return self._artifacts.active(kind_of(kind, self._profile))

    def served(self) -> dict[str, Artifact]:
        """Return what serves the profile."""
        return models.serving(self._artifacts.served(), self._profile)

    def load_intact(self, kind: str) -> list[tuple[Artifact, bytes]]:
        """Return the candidates of the profile, those for all if it has none."""
        return self._artifacts.load_intact(kind_of(kind, self._profile)) or self._artifacts.load_intact(kind)

    def retire(self, kind: str) -> None:
        """Serve the profile what is for all again."""
        self._artifacts.retire(kind_of(kind, self._profile))


class ProfileLearner:
    """Has each method learn for one profile."""

    def __init__(self, learner: ForAll, profile: str, profile_of: Mapping[str, str]) -> None:
        """`learner` has learned for all from the same log."""
        self._learner = learner
        self._profile = profile
        store, config, catalog = learner.store, learner.config, learner.catalog
        whole, people = learner.timeline.episodes, learner.people
        own = [
            (place, each)
            for place, each in enumerate(whole)
            if each.source != "import" and profile_of.get(session_of(each)) == profile
        ]
        # As for all: what fewer people of the profile have said might be known to be of one of them.
        clean = sharing([each for _, each in own], people, config.settings.share_words)
        cleaned = learner.embed(clean_episodes([each for _, each in own], clean))
        places = {each.key: place for place, each in own}
        self._places = [places[each.key] for each in cleaned]
        """Where each task of the profile stands among the tasks of all."""
        self.timeline = Timeline([], cleaned, learner.upstream_of)
        self._missed = clean_missed(read_missed(store, learner.upstream_of, people, profile), clean)
        artifacts = ProfileArtifacts(store.artifacts, profile)
        results = learner.results_of_run
        self._written = Results(artifacts, self.timeline.stamp(), results.encoders, results.now, results.check)
        size = replace(learner.size, whole=config.profiles[profile].list_tokens)
        admits = config.profiles[profile].admits
        first = FirstTools(catalog).order(
            lambda tool: tool.id in learner.upstream_of and admits(tool.upstream), size.whole
        )
        self._prior = ListPrior(self.timeline, size, self._written, first)
        self.known = self._translate(learner.known)
        replay = Replay(catalog, learner.texts, self.timeline, learner.upstream_of, learner.replay)
        self._replay = replay
        self._growth = ListGrowth(
            self.timeline, replay, self._prior, size, self._written, learner.prompted,
            learner.config.settings.list_fill,
        )  # fmt: skip
        self._promotion = MethodPromotion(
            self.timeline, replay, self.known, self._growth, self._written, self._material_before, NoCheckpoints()
        )

    def results(self, methods: Sequence[str] = ()) -> Iterator[MethodResult]:
        """Yield what comes of lists, of each method, of the weights, and of how lists grow."""
        for result in self._results(methods):
            yield replace(result, kind=kind_of(result.kind, self._profile))

    def _results(self, methods: Sequence[str]) -> Iterator[MethodResult]:
        if not methods:
            yield self._prior.learn(self._say)
        for kind, trained in register.METHODS.items():
            if kind in FOR_ALL or (methods and kind not in methods):
                continue
            try:
                method: Method = register.load(trained.training)
            except ImportError:
                continue  # said for all
            yield self._learn_method(kind, method)
        if len(self.known) and (not methods or models.WEIGHTS in methods):
            yield refit_weights(self.timeline, self._replay, self.known, self._written, self._say)
        numbers = self._written.numbers()
        if numbers != self._learner.results_of_run.numbers() and (not methods or models.GROWTH in methods):
            yield self._growth.learn(self.known, self._say)

    def _learn_method(self, kind: str, method: Method) -> MethodResult:
        """Train on earlier tasks of the profile, and replay later ones that the model for all has not seen either."""
        trial, own = self._written.begin(kind), self._written.comparable(kind)
        if len(self.timeline) < method.minimum:
            return trial.skip(f"{len(self.timeline)} tasks on record; it takes {method.minimum}")
        parts = self.timeline.parts_to_replay(own, self.known.first_place(kind))
        if not parts:
            self._keep_in_use(kind, own)
            return trial.skip("too few tasks that neither its model nor the one for all has seen")
        try:
            found = self._promotion.judge(kind, method, parts, self._say, b"", own)
            report = {"lists": found.lists.report()} if found.lists else {}
            report |= found.ranks.report()
            if is_promoted(found, own):
                data = method.train(self._material_before(len(self.timeline)), lambda *said: self._say(kind, *said))
                self._promotion.remember(kind, found.trained)
                return trial.promote(data, describe_gain(found.ranks), report | {"bytes": len(data)})
        except TooLittle as error:
            self._keep_in_use(kind, own)
            return trial.skip(str(error))
        if own is not None and found.ranks.difference[1] <= 0.0:
            self._written.check()
            self._written.artifacts.retire(kind)
            return trial.keep(f"put away, since what is for all ranks as well: {describe_gain(found.ranks)}", report)
        self._keep_in_use(kind, own)
        return trial.keep(describe_no_gain(found.ranks, kind, own), report)

    def _keep_in_use(self, kind: str, own: Artifact | None) -> None:
        """Let the profile's own model take part when the next methods are judged."""
        if own is None:
            return
        data = next((data for each, data in self._written.artifacts.load_intact(kind) if each == own), b"")
        if data:
            self.known.add(kind, self.timeline.place_after(own), models.open_model(kind, data))

    def _translate(self, known: KnownModels) -> KnownModels:
        """Return the models for all, each with its place among the tasks of the profile."""
        found = KnownModels()
        for kind, place, model in known.versions():
            found.add(kind, bisect_left(self._places, place), model)
        return found

    def _material_before(self, place: int) -> Material:
        return self._learner.material_of(self.timeline, self._missed, place)

    def _say(self, kind: str, what: str, share: float) -> None:
        self._learner.say(kind_of(kind, self._profile), what, share)
