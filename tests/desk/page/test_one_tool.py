"""One tool: its words, its versions, its neighbours."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_fakes import CALC, WEATHER, definition, fill, write_config
from msgspec.structs import replace

from foretool.desk.page.one_tool import Graphs, read_tool
from foretool.desk.page.viewers import Viewer
from foretool.server import offline
from foretool.server.config.loader import load
from foretool.server.config.servers import fingerprint
from foretool.storage.opening import open_store
from foretool.storage.records import Neighbour, ToolId, Wording
from foretool.storage.steps import finish

ALL = Viewer("key")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    words = {"forecast": {"description": "My weather"}}
    path = write_config(
        tmp_path, {"calc": {"command": "calc"}, "sky": {"command": "sky", "tools": words}},
        profiles={"work": {"servers": ["calc"]}},
    )  # fmt: skip
    with fill(path) as store:
        store.flows.add({(WEATHER, CALC, "degrees", "text"): 4}, 9.0)
    return path


def test_a_tool_has_the_users_words_and_those_of_its_server(path: Path) -> None:
    page = read_tool(load(path), ALL, WEATHER, Graphs())
    assert page is not None
    assert (page.description, page.original) == ("My weather", "Forecast of the weather for a city.")
    assert [miss.id for miss in page.misses] == [1]
    assert '"properties"' in page.schema
    assert read_tool(load(path), ALL, "no", Graphs()) is None


def test_what_it_feeds_comes_with_evidence_and_is_drawn(path: Path) -> None:
    page = read_tool(load(path), ALL, WEATHER, Graphs())
    assert page is not None
    (edge,) = page.feeds
    assert edge.after == CALC and any("degrees" in line for line in edge.evidence)
    assert [edge.after for edge in page.feeds] == [CALC] and page.needs == []


def test_who_calls_it_is_counted_by_client(path: Path) -> None:
    page = read_tool(load(path), ALL, WEATHER, Graphs())
    assert page is not None
    assert page.before == [Neighbour("cursor", ToolId(""), True, 1)]
    assert page.after == [Neighbour("cursor", ToolId(""), False, 1)]


def test_versions_differ_from_the_one_before(path: Path) -> None:
    config = load(path)
    with open_store(config.storage) as store:
        record, kept = store.catalog.load([("calc", fingerprint(config.servers["calc"]))])[0]
        changed = [replace(kept[0], definition=definition("add", "Adds many numbers."), schema_hash="later")]
        finish(store.catalog.save_upstream(record, changed))
    page = read_tool(config, ALL, CALC, Graphs())
    assert page is not None
    new, old = page.versions
    assert (new.hash, old.hash, old.lines) == ("later", "calc-add", [])
    assert "Adds [-two-] {+many+} numbers." in new.lines[1].plain


def test_the_graph_is_drawn_again_when_something_new_flowed(path: Path) -> None:
    graphs = Graphs()
    first = read_tool(load(path), ALL, CALC, graphs)
    with open_store(load(path).storage) as store:
        store.flows.add({(ToolId("sky__moon"), CALC, "phase", "text"): 2}, 10.0)
    second = read_tool(load(path), ALL, CALC, graphs)
    assert first is not None and second is not None
    assert ([edge.before for edge in first.needs], len(second.needs)) == ([WEATHER], 2)


def test_another_profile_sees_neither_the_tool_nor_its_name(path: Path) -> None:
    work = Viewer("key", "work")
    assert read_tool(load(path), work, WEATHER, Graphs()) is None
    page = read_tool(load(path), work, CALC, Graphs())
    assert page is not None and page.needs == [] and page.before == [] and page.usage is None


def test_what_a_model_has_worded_is_marked_as_its_words(path: Path) -> None:
    config = load(path)
    with offline.open_offline(config) as app:
        key = app.search.update_corpus().digests[app.search.update_corpus().slot_of[WEATHER]]
    with open_store(config.storage) as store:
        store.wordings.save(Wording(key, "tiny <b>", 1, "sky", WEATHER, ("do I need a coat",), 1, 0.1, 1.0))
    page = read_tool(config, ALL, WEATHER, Graphs())
    assert page is not None and page.wordings is not None
    assert (page.wordings.model, page.wordings.texts) == ("tiny <b>", ("do I need a coat",))
    assert "coat" not in page.description + page.original + page.schema
    other = read_tool(config, ALL, CALC, Graphs())
    assert other is not None and other.wordings is None
