"""Then against now: figures per task, and intervals of their differences over pairs of tasks."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest
from msgspec.structs import replace
from recorded_tasks import HOUR, START, write_recorded
from stored_records import MISS

from foretool.desk.replay.changes import read_changes
from foretool.desk.replay.effect import Replays, compare_tasks, measure_fixes, open_replays
from foretool.desk.replay.player import PlayedTask
from foretool.retrieval.corpus import Corpus
from foretool.retrieval.document import Document
from foretool.server import offline
from foretool.server.config import loader
from foretool.server.ledger.effects import Difference, Effect, Figures
from foretool.server.ledger.fixes import Fix, MeasuredFix, diagnose_miss
from foretool.server.recording.costs import add_costs, read_costs
from foretool.server.setup.own_servers import change_config, read_own_servers
from foretool.storage.opening import open_existing_store, open_store
from foretool.storage.records import SHELL_CLIENT, SessionRecord, Tool

NOW = START + 100 * HOUR
# Every tool in turn, so that a small list never has them all.
NEEDS = [
    ("add two numbers", ["calc__add"]), ("send a message by mail", ["mail__send"]), ("the weather", ["sky__forecast"]),
    ("take one number from another", ["calc__subtract"]), ("phase of the moon", ["sky__moon"]),
    ("find messages by words", ["mail__find"]),
]  # fmt: skip


def effect_of(path: Path, *changes: str) -> Effect:
    config, own = loader.load(path), read_own_servers(path)
    changed = change_config(config, own, read_changes(changes, config))
    with open_replays(config, START - 10, NOW) as replays:
        return replays.effect(changed)


def test_a_larger_list_spares_misses_and_costs_tokens(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, NEEDS * 4)
    effect = effect_of(path, "list_tokens=2000")
    assert effect.misses.is_lower and effect.discoveries.is_lower
    assert effect.now.misses > effect.then.misses
    assert (effect.tasks, effect.sessions, effect.calls) == (24, 24, 24)
    assert effect.shifts and all(each.then < each.now for each in effect.shifts)


def test_a_change_costs_what_the_list_takes_that_it_brings(tmp_path: Path) -> None:
    # No tool had been used before the first tasks, so the lists of their time had few.
    path = write_recorded(tmp_path, NEEDS, list_tokens=320)
    config = loader.load(path)
    missed = replace(MISS, session="s0", tool="sky__moon", noticed="call", cause="budget", call=0, at=START + 3)
    with offline.open_offline(config) as app:
        budget = next(each for each in diagnose_miss(app, missed).fixes if each.kind == "budget")
    (change,) = budget.changes
    effect = effect_of(path, change.text)
    with offline.open_offline(config) as app:
        now = offline.view(app, config.profiles[""]).tokens
    assert (effect.now.listed, effect.then.listed) == (now, budget.list_tokens)
    changed = change_config(config, read_own_servers(path), [change])
    with open_replays(config, START - 10, NOW) as replays:
        before, after = replays.now, replays.play(changed)
    again = [(one, other) for one, other in zip(before, after, strict=True) if one.discoveries == other.discoveries]
    turns = [one.calls + one.discoveries for one, _ in again]
    more = budget.list_tokens - now
    # Answers say a few words more or less.
    costs = [other.read - one.read for one, other in again]
    assert again and costs == pytest.approx([more * each for each in turns], abs=20)


def test_what_foretool_call_did_is_no_task(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, NEEDS)
    config = loader.load(path)
    with open_store(config.storage) as store:
        at = START + 50 * HOUR
        store.sessions.begin(SessionRecord("shell", SHELL_CLIENT, "1", "legacy", "stdio", "", at, at + 60))
        store.calls.record([replace(store.calls.recent(1)[0], session="shell", at=at, discovery=0)])
    with open_replays(config, START - 10, NOW) as replays:
        assert len(replays.tasks) == len(NEEDS)
    with open_existing_store(config.storage) as store:
        assert add_costs(read_costs(store, START - 10, NOW, 1), "").tasks == len(NEEDS)


def test_a_change_of_nothing_has_no_difference(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, NEEDS)
    effect = effect_of(path, "list_tokens=420")
    assert effect.now == effect.then and effect.verdict == "same" and not effect.is_worse
    assert effect.misses == effect.discoveries == effect.tokens == Difference(0.0, 0.0, 0.0)


def test_taking_a_server_away_is_worse_even_if_it_costs_less(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, NEEDS)
    effect = effect_of(path, "servers.mail.disabled=true")
    assert effect.then.unreachable == pytest.approx(2 / 6, abs=1e-3)
    assert effect.is_worse and effect.verdict in ("worse", "mixed")


def test_what_is_on_record_is_told_beside_what_is_played(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, NEEDS)
    with open_replays(loader.load(path), START - 10, NOW) as replays:
        assert (replays.recorded.misses, replays.recorded.discoveries) == (1.0, 1.0)
        assert replays.effect_of_nothing().verdict == "same"


def test_only_what_the_sessions_of_the_tasks_searched_is_counted(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, NEEDS)
    config = loader.load(path)
    with open_store(config.storage) as store:
        other = store.discoveries.recent(1)[0]
        store.discoveries.add(replace(other, session="another", task="without a call"))
        store.discoveries.add(replace(other, at=START - HOUR, task="long ago"))
    with open_replays(config, START - 10, NOW) as replays:
        assert replays.recorded.discoveries == 1.0


def test_without_patience_a_few_tasks_are_played_by_all_configs(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, NEEDS * 4)
    config, own = loader.load(path), read_own_servers(path)
    changed = change_config(config, own, read_changes(["list_tokens=2000"], config))
    with open_existing_store(config.storage) as store:
        whole, short = (Replays(config, store, START - 10, NOW, patience_s=each) for each in (inf, 0.0))
        (some,), (every,) = short.play_all([changed]), whole.play_all([changed])
        assert (len(every), len(some), len(short.now), len(short.tasks)) == (24, 5, 5, 5)
        assert [each.key for each in some] == [each.key for each in every[:5]] and short.now == whole.now[:5]
        assert len(short.play(config)) == 5, "what is compared later has the same tasks"
        effect = short.effect(changed)
        assert (effect.tasks, effect.of) == (5, 24), "how many there are is said"


@pytest.mark.slow
def test_without_patience_many_configs_play_fewer_tasks(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, NEEDS * 4)
    config = loader.load(path)
    with open_existing_store(config.storage) as store:
        for others, played in ((4, 3), (20, 2)):
            replays = Replays(config, store, START - 10, NOW, patience_s=0.0)
            assert [len(each) for each in replays.play_all([config] * others)] == [played] * others


def test_configs_that_take_over_an_index_play_as_those_that_read_every_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_recorded(tmp_path, NEEDS * 2)
    config = loader.load(path)
    said = "servers.sky.tools.moon.description=The height of the tide"
    changed = [
        change_config(config, read_own_servers(path), read_changes(asked, config))
        for asked in ([said], ["servers.calc.disabled=true"], ["list_tokens=2000"])
    ]
    read: list[str] = []
    as_it_is = Corpus.read

    def note(corpus: Corpus, tool: Tool, server_text: str = "") -> tuple[Document, bytes]:
        read.append(tool.id)
        return as_it_is(corpus, tool, server_text)

    monkeypatch.setattr(Corpus, "read", note)
    with open_existing_store(config.storage) as store:
        together = Replays(config, store, START - 10, NOW).play_all(changed)
        assert sorted(read) == sorted([*set(read), "sky__moon"]), "only the tool with other words is read again"
        alone = [Replays(config, store, START - 10, NOW).play(each) for each in changed]
    assert together == alone
    assert together[0] != together[2], "the changes do something"


def test_without_tasks_there_is_nothing_to_compare(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, [])
    with open_replays(loader.load(path), START, NOW) as replays:
        assert replays.effect_of_nothing().tasks == 0 and replays.recorded.misses == 0.0


def test_the_verdict_follows_the_intervals() -> None:
    less = [PlayedTask(str(number), calls=1, misses=0, discoveries=0, read=100) for number in range(40)]
    more = [PlayedTask(str(number), calls=1, misses=1, discoveries=1, read=100) for number in range(40)]
    dear = [PlayedTask(str(number), calls=1, misses=0, discoveries=0, read=200) for number in range(40)]
    assert compare_tasks(more, less).verdict == "better" and not compare_tasks(more, less).is_worse
    assert compare_tasks(less, more).verdict == "worse" and compare_tasks(less, more).is_worse
    assert compare_tasks(more, dear).verdict == "mixed" and compare_tasks(more, dear).tokens.is_higher
    gained = compare_tasks(more, less).misses
    assert (gained.low, gained.mean, gained.high) == (-1.0, -1.0, -1.0)


TASKS = [("phase of the moon", ["sky__moon"]), ("add two numbers", ["calc__add"])] * 3
HIDDEN = replace(
    MISS, session="s0", tool="sky__moon", noticed="discovery", cause="budget", rank=2, of=6,
    query="how full is it tonight?", exposure=0, discovery=0, call=0, change="", at=START + 3,
)  # fmt: skip


def test_the_change_with_the_best_replayed_effect_comes_first(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, TASKS * 4, list_tokens=360)
    config = loader.load(path)
    with offline.open_offline(config) as app:
        diagnosis = diagnose_miss(app, HIDDEN)
        replays = Replays(config, app.store, START - 10, START + 99 * HOUR)
        measured = measure_fixes(replays, config, [*diagnosis.fixes, Fix("learn", "learn")], diagnosis.tool)
    effects = [each.effect for each in measured if each.effect is not None]
    costs = [(each.misses.mean, each.discoveries.mean, each.tokens.mean) for each in effects]
    assert costs == sorted(costs) and len(costs) > 1
    assert measured[-1].fix.kind == "learn" and measured[-1].effect is None


@pytest.mark.slow
def test_the_task_of_a_miss_is_played_however_few_are_and_orders_the_changes_alike(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, NEEDS * 4, list_tokens=360)
    config = loader.load(path)
    with offline.open_offline(config) as app:
        for place in (1, 10, 22):
            session = f"s{place}"
            (call,) = app.store.calls.of_session(session, 0.0, inf)
            missed = replace(HIDDEN, session=session, at=call.at, tool=call.tool, query="")
            diagnosis = diagnose_miss(app, missed)
            measured = []
            for patience in (inf, 0.0):
                replays = Replays(config, app.store, START - 10, NOW, patience_s=patience, around=missed)
                measured.append(measure_fixes(replays, config, diagnosis.fixes, diagnosis.tool))
                assert session in [each.session.key for each in replays.tasks]
            every, few = measured
            assert [each.fix for each in every] == [each.fix for each in few] and len(few) > 1
            assert few[0].spared > 0 and few[0].is_advised and few[0].effect is not None
            assert few[0].effect.tasks < 24 and not few[0].spares_nothing


def test_the_task_of_a_miss_is_played_although_later_ones_fill_the_replay(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, NEEDS * 2)
    config = loader.load(path)
    with open_existing_store(config.storage) as store:
        missed = replace(HIDDEN, session="s2", at=START + 2 * HOUR + 60)
        replays = Replays(config, store, START - 10, NOW, 4, around=missed)
        assert [each.session.key for each in replays.tasks] == ["s2", "s3", "s4", "s5"]


@pytest.mark.parametrize(
    ("misses", "searches", "is_worse"),
    [
        ((0.1, 0.2, 0.3), (0.0, 0.0, 0.0), True),
        ((-0.1, 0.2, 0.5), (-0.1, -0.1, -0.1), True),
        ((0.0, 0.0, 0.0), (0.0, 0.1, 0.2), True),
        ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0), False),
        ((-0.3, -0.2, -0.1), (-0.1, 0.0, 0.1), False),
    ],
)
def test_a_change_with_which_tasks_would_have_missed_or_searched_more_is_worse(
    misses: tuple[float, float, float], searches: tuple[float, float, float], is_worse: bool
) -> None:
    figures = Figures(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    tokens = Difference(0.0, 0.0, 0.0)
    effect = Effect(9, 9, 9, 0, figures, figures, Difference(*misses), Difference(*searches), tokens, ())
    assert MeasuredFix(Fix("pin", "pin x"), effect, 0).is_worse == is_worse
