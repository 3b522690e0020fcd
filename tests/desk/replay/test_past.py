"""The store as it was: usage and models of a moment, and no trace in the store that is kept."""

import random
from collections import Counter
from pathlib import Path

from recorded_tasks import HOUR, START, write_recorded

from foretool.desk.replay.past import TEXTS, PastStore, read_past
from foretool.server.config import loader
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Outcome, Prompt, ToolId, Usage
from foretool.storage.sql.calls import CallStore

TASKS = [("add numbers", ["calc__add"])] * 2 + [("the moon", ["sky__moon", "calc__add"])]


def test_usage_is_that_of_the_moment_and_grows_with_what_is_played(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, TASKS)
    with open_store(loader.load(path).storage) as kept, PastStore(kept, read_past(kept, START + 2 * HOUR)) as past:
        (before,) = past.calls.usage()
        assert past.calls.counted_usage() == [before]  # what lists and searches read
        assert before == Usage(ToolId("calc__add"), 2, 2, START + HOUR + 2)
        call = Call("s9", past.now(), ToolId("sky__moon"), "sky", "name", False, "ok", 1.0, True, "")
        past.calls.record([call, call])
        assert {each.tool: each.calls for each in past.calls.usage()} == {"calc__add": 2, "sky__moon": 2}
        assert {each.tool: each.calls for each in kept.calls.usage()} == {"calc__add": 3, "sky__moon": 1}


def test_a_model_counts_from_its_promotion_on(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, TASKS)
    with open_store(loader.load(path).storage) as kept:
        kept.artifacts.add("names", b"first", {}, promote=True, at=START + HOUR)
        kept.artifacts.add("run", b"", {}, promote=False, at=START + 2 * HOUR)
        kept.artifacts.add("names", b"second", {}, promote=True, at=START + 3 * HOUR)
        with PastStore(kept, read_past(kept, START)) as past:
            seen = []
            for hours in (0, 1, 2, 3):
                past.time = START + hours * HOUR
                served = [data for _, data in past.artifacts.load_intact("names")[:1]]
                seen.append((past.artifacts.version, served, len(past.artifacts.served())))
            assert seen == [(0, [], 0), (1, [b"first"], 1), (2, [b"first"], 1), (3, [b"second"], 1)]
            assert past.artifacts.active("names") is not None
            past.time = START
            assert past.artifacts.active("names") is None and past.artifacts.history() == []


def test_what_was_asked_before_and_who_lists_again_is_known(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, TASKS)
    with open_store(loader.load(path).storage) as kept, PastStore(kept, read_past(kept, START + 2 * HOUR)) as past:
        assert past.tasks.latest(5) == ["add numbers"]
        assert past.sessions.first_at() == kept.sessions.first_at() == START
        assert past.discoveries.recent(-1) == [] and past.sessions.recent() == []
        assert (past.trouble, past.notice, past.is_checkpoint_due) == ("", "", False)
        assert past.statistics().calls == kept.statistics().calls == 4


def test_what_had_happened_before_is_that_of_reading_the_whole_log(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, [("add numbers", ["calc__add"]), ("the moon", ["sky__moon"])] * 8)
    with open_store(loader.load(path).storage) as kept:
        for number in range(6):
            kept.tasks.add_prompt(Prompt(START + number * HOUR, f"prompt {number}"))
        for since in (START, START + 3 * HOUR, START + 3.5 * HOUR, START + 99 * HOUR):
            before = read_past(kept, since)
            calls = [each for each in kept.calls.events(-1) if each.at < since]
            assert list(before.calls) == calls
            texts = [each.text for each in kept.discoveries.events() if each.at < since][-TEXTS:]
            texts += [each.text for each in kept.tasks.prompts() if each.at < since][:TEXTS]
            assert sorted(each.text for each in before.texts) == sorted(texts)
            missed = Counter(each.tool for each in kept.calls.misses() if each.at < since)
            # Everything before is put into the log, so nothing but misses is left to count.
            found = {each.tool: (each.calls, each.misses) for each in before.usage.values()}
            assert found == {tool: (0, count) for tool, count in missed.items()}


def test_what_fails_is_what_the_store_would_say(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, TASKS)
    rng = random.Random(5)
    outcomes: tuple[Outcome, ...] = ("ok", "tool_error", "refused", "cancelled", "lost")
    with open_store(loader.load(path).storage) as kept, PastStore(kept, read_past(kept, START + 2 * HOUR)) as past:
        said = set()
        for _ in range(300):
            tool = ToolId(f"sky__{rng.choice('abcdefgh')}")
            given = rng.choices(outcomes, (1, 6, 2, 2, 2))[0]
            past.calls.record([Call("s9", past.now(), tool, "sky", "name", False, given, 1.0, True, "")])
            found = past.calls.failing(20)
            assert found == CallStore.failing(past.calls, 20)
            said |= found
        assert len(said) == 8
