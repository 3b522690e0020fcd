"""A profile learns from its own tasks what serves there alone, and has what is for all where that is better."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from command_fakes import remember, write_config
from learning_setting import ADD, MOON, RAIN, SUB, SUM, TEXT, Setting, Watching, use
from postgres import SKIPPED, new_schema
from requirements import requirement

from foretool.learning.profiles import LEAST
from foretool.learning.run import Run
from foretool.retrieval.ranking import Query
from foretool.server import offline
from foretool.server.catalog import models
from foretool.server.commands.group import run as run_command
from foretool.server.config import loader
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Discovery, SessionRecord, ToolId

OPS, WEB = ((SUM, RAIN), (ADD, MOON)), ((SUM, MOON), (ADD, RAIN))
"""The same tools are used as often in both profiles, one after another in each."""
TASKS = 60
START = time.time() - 600 * 3600.0
"""Lately: what was used long ago fills no list."""
NOW = START + 1e7


@pytest.fixture(params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    """A store of each engine, with the profiles `ops` and `web`."""
    use(monkeypatch, "METHOD")
    Watching.seen.clear()
    settings: dict[str, object] = {"profiles": {"ops": {}, "web": {}, "shy": {"learn": False}}, "list_tokens": 780}
    if request.param == "postgres":
        settings["storage"] = new_schema() or pytest.skip(SKIPPED)
    setting = object.__new__(Setting)
    setting.config = loader.load(write_config(tmp_path, **settings))
    setting.store = open_store(setting.config.storage)
    remember(setting.config, setting.store, "calc", {"add": TEXT, "sub": TEXT, "sum": TEXT})
    remember(setting.config, setting.store, "sky", {"moon": TEXT, "rain": TEXT})
    setting.artifacts = setting.store.artifacts
    yield setting
    setting.store.close()


def work(
    setting: Setting, profile: str, *tasks: Sequence[ToolId], times: int = TASKS, first: int = 0,
    words: str = "a number", people: int = 3, learns: bool = True,
) -> None:  # fmt: skip
    """Record tasks of a profile, an hour apart, in turn and by some people in turn."""
    for number in range(first, first + times):
        session, at = f"{profile}{number}", START + 3600.0 * number
        setting.store.sessions.begin(SessionRecord(session, "c", "1", "modern", "http", profile, at, at + 60))
        setting.store.sessions.name_person(session, f"oauth:{profile}{number % people}", learns=learns, at=at)
        setting.store.discoveries.add(Discovery(session, at, words, (), None, "high", (), 1, 1.0))
        setting.store.calls.record([
            Call(session, at + 1 + place, tool, tool.partition("__")[0], "name", False, "ok", 1.0, True, "")
            for place, tool in enumerate(tasks[number % len(tasks)])
        ])  # fmt: skip


def outcomes(run: Run) -> dict[str, str]:
    return {each.kind: each.outcome for each in run.results if each.kind.startswith("dtdr")}


def follows(setting: Setting, profile: str, after: ToolId) -> ToolId:
    """Return the tool that stands first in a search of a profile after a call."""
    with offline.read(setting.config) as app:
        assert models.install_models(app.search, setting.store) == ()
        query = Query(("works",), (), (after,), (), profile)
        return app.search.find_now(query, lambda tool: True, 5).ranked[0].tool


@requirement("learn:profiles")
def test_each_profile_is_ranked_by_what_its_own_tasks_have_taught(shared: Setting) -> None:
    work(shared, "ops", *OPS)
    work(shared, "web", *WEB)
    run = shared.learn(now=NOW)
    assert outcomes(run) == {"dtdr": "promoted", "dtdr@ops": "promoted", "dtdr@web": "promoted"}
    assert follows(shared, "ops", SUM) == RAIN
    assert follows(shared, "web", SUM) == MOON
    opened = models.open_models(models.read_models(shared.store))
    assert opened.learned is not None and sorted(opened.by_profile) == ["ops", "web"]
    counts = [each.models["dtdr"].counts[SUM] for each in (opened.learned, *opened.by_profile.values())]  # type: ignore[attr-defined]
    # For all, of ops, of web: none of the two has seen a task of the other.
    assert [set(each) - {"END"} for each in counts] == [{RAIN, MOON}, {RAIN}, {MOON}]
    assert shared.artifacts.active("dtdr@ops") is not None


@requirement("learn:profiles")
def test_predictions_of_two_profiles_do_not_mix(shared: Setting) -> None:
    work(shared, "ops", *OPS)
    work(shared, "web", *WEB)
    shared.learn(now=NOW)
    with offline.read(shared.config) as app:
        models.install_models(app.search, shared.store)
        app.search.update_corpus()
        for _ in range(2):
            assert list(app.search.predict((SUM,), (), "ops")[0]) == [RAIN]
            assert list(app.search.predict((SUM,), (), "web")[0]) == [MOON]
            assert set(app.search.predict((SUM,), (), "shy")[0]) == {RAIN, MOON}
        assert app.search.knows_next((SUM,), (), "ops") and app.search.knows_next((SUM,), (), "web")
        assert not app.search.knows_next((SUM, RAIN), (), "ops")


@requirement("learn:profiles")
def test_a_profile_with_few_tasks_or_with_all_of_them_has_what_is_for_all(shared: Setting) -> None:
    work(shared, "ops", *OPS)
    assert outcomes(shared.learn(now=NOW)) == {"dtdr": "promoted"}
    work(shared, "web", *WEB, times=LEAST - 1)
    assert "dtdr@web" not in outcomes(shared.learn(now=2 * NOW))
    assert follows(shared, "web", SUM) == RAIN


@requirement("learn:profiles", "learn:opt-out")
def test_a_profile_that_is_not_learned_from_gets_no_model(shared: Setting) -> None:
    work(shared, "ops", *OPS)
    work(shared, "web", *OPS)
    work(shared, "shy", *WEB, learns=False)
    run = shared.learn(now=NOW)
    assert run.episodes == 2 * TASKS and not any(each.kind.endswith("@shy") for each in run.results)
    assert follows(shared, "shy", SUM) == RAIN


@requirement("learn:profiles")
def test_no_word_of_a_profile_is_in_what_another_one_learns_nor_one_of_too_few_of_its_people(
    shared: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, "WATCHING")
    work(shared, "ops", *OPS, words="weather for zebras")
    work(shared, "web", *WEB, words="phase for lunatics")
    # Three people have said it, but two of them in another profile.
    work(shared, "ops", *OPS, times=2, first=TASKS, words="quagga", people=2)
    work(shared, "web", *WEB, times=1, first=TASKS, words="quagga")
    shared.learn(now=NOW)
    said = [
        {word for each in given.episodes for task in each.tasks for word in task.split()} for given in Watching.seen
    ]
    whole = {"weather", "for", "zebras", "phase", "lunatics", "quagga"}
    assert whole in said  # what is for all may know all of them
    assert {"weather", "for", "zebras"} in said and {"phase", "for", "lunatics"} in said
    mixed = [each for each in said if each not in (whole, whole - {"quagga"})]
    assert all(not (each & {"weather", "zebras"} and each & {"phase", "lunatics"}) for each in mixed)
    assert all("quagga" not in each for each in mixed)


@requirement("learn:profiles")
def test_a_model_of_a_profile_is_put_away_once_what_is_for_all_ranks_as_well(shared: Setting) -> None:
    work(shared, "ops", *OPS)
    work(shared, "web", *WEB)
    shared.learn(now=NOW)
    # From now on both do the same, and most of it is done in web.
    work(shared, "web", (ADD, SUB), first=TASKS, times=4 * TASKS)
    work(shared, "ops", (ADD, SUB), first=4 * TASKS)
    run = shared.learn(now=2 * NOW)
    said = next(each.reason for each in run.results if each.kind == "dtdr@ops")
    assert shared.artifacts.active("dtdr@ops") is None and said.startswith("put away"), said
    opened = models.open_models(models.read_models(shared.store))
    assert "ops" not in opened.by_profile


@requirement("learn:profiles")
def test_reports_and_rollbacks_name_the_profile(
    shared: Setting, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    work(shared, "ops", *OPS)
    work(shared, "web", *WEB)
    shared.learn(now=NOW)
    monkeypatch.setenv("FORETOOL_CONFIG", str(shared.config.path))
    assert run_command(["learn", "--report"]) == 0
    assert "dtdr (ops)" in capsys.readouterr().out
    assert run_command(["learn", "--rollback", "--method", "dtdr"]) == 0
    said = capsys.readouterr().out
    assert "dtdr (web) 1 no longer serves; what is for all serves" in said
    assert models.read_models(shared.store).keys() & {"dtdr", "dtdr@ops", "dtdr@web"} == set()
    assert run_command(["learn", "--report", "--json"]) == 0
    kinds = {each["kind"] for each in json.loads(capsys.readouterr().out)["history"]}
    assert {"dtdr", "dtdr@ops", "dtdr@web"} <= kinds


@requirement("learn:profiles")
def test_lists_of_a_profile_follow_its_own_prior_and_use(shared: Setting) -> None:
    # Another order of tools in each profile; a list has room for some of them.
    work(shared, "ops", (RAIN, MOON), times=150)
    work(shared, "web", (ADD, SUB), times=150)
    shared.store.calls.usage()
    with offline.read(shared.config) as app:
        view = {name: app.exposures.try_out(shared.config.profiles[name], "frozen").order() for name in ("ops", "web")}
        assert {name: set(each[:2]) for name, each in view.items()} == {"ops": {RAIN, MOON}, "web": {ADD, SUB}}
        query = Query(("works",), (), (), (), "ops")
        ranked = [each.tool for each in app.search.find_now(query, lambda tool: True, 5).ranked]
        assert set(ranked[:2]) == {RAIN, MOON}
