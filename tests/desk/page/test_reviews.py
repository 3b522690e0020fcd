"""A decision on the page is about exactly what the page showed."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_fakes import write_config
from held_fakes import EVIL, MOVED, NEW, definition, hold_changes, undecided

from foretool.desk.page import reviews
from foretool.desk.page.access import FormError
from foretool.server.config.loader import Config, load
from foretool.storage.opening import open_store
from foretool.storage.records import Person
from foretool.storage.steps import finish

ANN = Person("oauth:1", "ann")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    config = load(write_config(tmp_path))
    hold_changes(config)
    return config


def test_what_looks_wrong_is_not_ticked(config: Config) -> None:
    page = reviews.read_one(config, "calc")
    assert page is not None
    assert [(each.name, each.is_suspect) for each in page.held] == [("tool add", True), ("tool sub", False)]
    assert [batch.server for batch in reviews.read_all(config)] == ["calc"]
    assert reviews.read_one(config, "none") is None


def test_only_what_is_ticked_is_decided(config: Config) -> None:
    assert (
        reviews.decide_by_form(config, "calc", {"decision": ["approve"], "change": [NEW.hash]}, ANN)
        == "done=approved&count=1&left=0"
    )
    assert undecided(config) == {"add": "held"}
    assert (
        reviews.decide_by_form(config, "calc", {"decision": ["block"], "change": [EVIL.hash]}, ANN)
        == "done=blocked&count=1&left=0"
    )
    assert undecided(config) == {"add": "blocked"}
    assert reviews.decide_by_form(config, "calc", {"decision": ["approve"]}, ANN) == "done=approved&count=0&left=0"


def test_what_changed_after_it_was_shown_stays_held(config: Config) -> None:
    later = definition("add", "Adds, and more.", effect="kept", seen_at=7.0)
    with open_store(config.storage) as store:
        finish(store.approvals.hold("calc", ["tool"], [later, NEW]))
    said = reviews.decide_by_form(config, "calc", {"decision": ["approve"], "change": [EVIL.hash, NEW.hash]}, ANN)
    assert said == "done=approved&count=1&left=1"
    assert undecided(config) == {"add": "held"}


def test_no_command_is_approved_that_was_not_shown(config: Config) -> None:
    with open_store(config.storage) as store:
        finish(store.approvals.hold("calc", ["tool", "launch"], [EVIL, NEW, MOVED]))
    form = {"decision": ["approve"], "change": [NEW.hash]}
    with pytest.raises(FormError, match="command of calc has changed"):
        reviews.decide_by_form(config, "calc", form, ANN)
    assert (
        reviews.decide_by_form(config, "calc", {**form, "shown": [MOVED.hash]}, ANN) == "done=approved&count=2&left=0"
    )
    with pytest.raises(FormError, match="no decision"):
        reviews.decide_by_form(config, "calc", {"decision": ["delete"], "change": [NEW.hash]}, ANN)


def test_what_was_done_is_said_in_words() -> None:
    assert reviews.say_done({"done": "approved", "count": "2", "left": "0"}) == "2 approved."
    assert "1 changed meanwhile" in reviews.say_done({"done": "blocked", "count": "2", "left": "1"})
    for query in ({}, {"done": "<b>", "count": "1", "left": "0"}, {"done": "approved", "count": "x", "left": "0"}):
        assert reviews.say_done(query) == ""
