"""What is learned puts the tools of known wishes first, and leaves strange ones as doubtful as they were."""

from __future__ import annotations

import pytest
from requirements import requirement

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from bench.agents.hints import NEEDLESS
from bench.kept_encoder import joined_queries, open_kept
from bench.retrieval.gate import invented_wishes
from bench.retrieval.pool import Pool
from foretool.learning.rankers.dtdr import Dtdr
from foretool.learning.training import Material, dtdr
from foretool.retrieval import confidence, encoders
from foretool.retrieval.rankers.learned import LearnedModels
from foretool.retrieval.ranking import Query, Ranking
from foretool.storage.opening import open_store
from foretool.storage.records import Episode

pytestmark = pytest.mark.skipif(
    encoders.locate(encoders.MANIFEST[0]) is None, reason="the encoder's weights are not installed"
)

SERVERS, LOG = 16, 40


@requirement("learn:familiar")
def test_known_wishes_get_their_tools_and_strange_ones_stay_doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dtdr, "_FOLDS", 2)
    monkeypatch.setattr(dtdr, "_ORDERS", 2)
    quick = dtdr.DtdrTrainer(dtdr.Recipe(networks=1, trial_networks=1, steps_with_vectors=20, epochs=(2, 20), words=32))
    wishes = invented_wishes()
    servers = list(dict.fromkeys(tool.upstream for tool in wishes.tools))[:SERVERS]
    tools = tuple(tool for tool in wishes.tools if tool.upstream in servers)
    here = {tool.id for tool in tools}
    tasks = [task for task in wishes.tasks if all(need <= here for need in task.gold)][:LOG]
    log = tuple(Episode(tuple(map(min, task.gold)), (task.query,)) for task in tasks)
    strange = NEEDLESS.read_text("utf-8").splitlines()
    with open_store(":memory:") as store:
        encoder = open_kept(encoders.resolve_weights("minilm-tools")[0], store.vectors, queries=False)
        material = Material(tools, log, queries=joined_queries([encoder]), documents=encoder.documents, seed=7)
        learned = LearnedModels({"dtdr": Dtdr.loads(quick.train(material, lambda step, share: None))})
        pipeline = Pool(tools, {}, [encoder]).pipeline(1)

        def rank(task: str, models: LearnedModels | None) -> Ranking:
            pipeline.learned = models
            return pipeline.rank(Query((task,)))

        def first(models: LearnedModels | None) -> int:
            return sum(rank(task.query, models).ranked[0].tool in task.gold[0] for task in tasks)

        def doubtful(models: LearnedModels | None) -> int:
            return sum(confidence.level(rank(task, models)) in ("low", "none") for task in strange)

        assert first(learned) >= first(None) + 8  # 36 and 24 of 40
        assert doubtful(learned) >= doubtful(None) - 3  # 37 and 39 of 45
