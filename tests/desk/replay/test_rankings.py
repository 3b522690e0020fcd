"""How well rankings find what queries need."""

import time
from pathlib import Path

from recorded_tasks import write_recorded
from tools import tool

from foretool.desk.replay.queries import read_log
from foretool.desk.replay.rankings import Rankings, bm25_scores
from foretool.server import offline
from foretool.server.config import loader
from foretool.storage.opening import open_store
from foretool.storage.records import ToolId, Wording


def test_what_the_profile_may_not_find_is_not_ranked(tmp_path: Path) -> None:
    config = loader.load(write_recorded(tmp_path, [("message by mail", ["mail__send"])] * 2))
    with offline.open_offline(config) as app:
        rankings = Rankings(app, config.settings, lambda tool: tool.upstream != "mail")
        assert {tool.upstream for tool in rankings.tools} == {"calc", "sky"}
        found = read_log(app.store, rankings.tools, 0.0, time.time(), 10)
        assert found.queries == () and found.unknown == 2
        all_tasks = read_log(app.store, app.catalog.tools(), 0.0, time.time(), 10)
        assert [each.in_10.mean for each in rankings.compare(all_tasks.queries)] == [0.0, 0.0, 0.0]


def test_usage_of_earlier_tasks_decides_between_equals(tmp_path: Path) -> None:
    tasks = [("zebra", ["sky__moon"]), ("adds numbers; finds messages; phase of the moon", ["sky__moon"])]
    config = loader.load(write_recorded(tmp_path, tasks))
    with offline.open_offline(config) as app:
        rankings = Rankings(app, config.settings, lambda tool: True)
        queries = read_log(app.store, rankings.tools, 0.0, time.time(), 10).queries
        bm25, words, served = rankings.compare(queries)
    assert (bm25.ranking, words.ranking, served.ranking) == ("BM25", "words", "served")
    assert served.reciprocal_rank.mean >= words.reciprocal_rank.mean
    assert served.served_over_it.mean == 0.0


def test_wordings_of_a_language_model_are_read_too(tmp_path: Path) -> None:
    config = loader.load(write_recorded(tmp_path, [("a selenite evening", ["sky__moon"])]))
    with offline.open_offline(config) as app:
        key = app.search.update_corpus().digests[app.search.update_corpus().slot_of[ToolId("sky__moon")]]
    with open_store(config.storage) as store:
        store.wordings.save(Wording(key, "tiny", 1, "sky", "sky__moon", ("a selenite evening",), 1, 0.1, 1.0))
    with offline.open_offline(config) as app:
        rankings = Rankings(app, config.settings, lambda tool: True)
        queries = read_log(app.store, rankings.tools, 0.0, time.time(), 10).queries
        bm25, words, served = rankings.compare(queries)
    assert bm25.first.mean == 0.0 and words.first.mean == served.first.mean == 1.0


def test_rare_words_weigh_more_and_other_tools_get_nothing() -> None:
    tools = [tool("s", "send", "Sends a message."), tool("s", "find", "Finds a message."), tool("s", "moon", "Phase.")]
    scores = bm25_scores(tools)("send a message")
    assert scores[0] > scores[1] > scores[2] == 0.0


def test_long_texts_gain_less_from_a_word() -> None:
    tools = [tool("s", "a", "moon"), tool("s", "b", "moon " + "of many other words " * 9)]
    short, long = bm25_scores(tools)("moon")
    assert short > long > 0.0


def test_no_tools_no_scores() -> None:
    assert bm25_scores([])("anything") == []
