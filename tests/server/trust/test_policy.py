"""Which tools a profile reaches, how dangerous a tool is, and which calls run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeUpstream, changed, config_of, tool
from requirements import requirement

from foretool.server.config.loader import LiveConfig
from foretool.server.config.settings import ServerEntry
from foretool.server.protocol import jsonrpc
from foretool.server.trust.policy import Reach, Refuse, Run, TrustPolicy, rate
from foretool.storage.records import Tool, ToolId

SERVER = Path(__file__).resolve().parents[3] / "server"


def made(name: str = "wipe", upstream: str = "disk", **annotations: Any) -> Tool:
    more: dict[str, Any] = {"annotations": annotations} if annotations else {}
    return Tool(ToolId(f"{upstream}__{name}"), upstream, name, bytes(jsonrpc.raw(tool(name, **more))), str(annotations))


def reach(entry: dict[str, Any] | None = None, **profile: Any) -> Reach:
    """What the profile "dev" reaches of the servers "disk" (with this entry) and "mail"."""
    config = config_of(FakeUpstream("disk", entry=entry or {}), FakeUpstream("mail"), profiles={"dev": profile})
    return Reach(config.profiles["dev"], config.servers, config.settings)


@requirement("trust:policy:risk")
@pytest.mark.parametrize(
    ("annotations", "risk", "source", "may_destroy"),
    [
        ({"readOnlyHint": True}, "read", "server", False),
        ({"readOnlyHint": True, "destructiveHint": False}, "read", "server", False),
        ({"readOnlyHint": True, "destructiveHint": True}, "destructive", "server", True),
        ({"destructiveHint": True}, "destructive", "server", True),
        ({"destructiveHint": False}, "write", "server", False),
        ({"readOnlyHint": False, "destructiveHint": False}, "write", "server", False),
        ({"readOnlyHint": False}, "write", "none", True),
        ({"title": "Wipe"}, "write", "none", True),
        ({}, "write", "none", True),
        ({"readOnlyHint": "true"}, "write", "none", True),
        ({"readOnlyHint": 1}, "write", "none", True),
        ({"destructiveHint": "false"}, "write", "none", True),
    ],
)
def test_a_tool_is_as_dangerous_as_its_annotations_say_and_the_worse_of_two_counts(
    annotations: dict[str, Any], risk: str, source: str, may_destroy: bool
) -> None:
    verdict = reach().verdict(made(**annotations))
    assert (verdict.risk, verdict.source, verdict.may_destroy) == (risk, source, may_destroy)


@pytest.mark.parametrize("annotations", [b"null", b"[]", b'"x"', b"5"])
def test_annotations_of_another_kind_say_nothing(annotations: bytes) -> None:
    found = changed(made(), definition=b'{"name":"wipe","inputSchema":{},"annotations":%s}' % annotations)
    assert rate(found, ServerEntry()) == ("write", "none")


@requirement("trust:policy:risk")
def test_the_users_word_beats_the_servers_and_the_most_exact_pattern_counts() -> None:
    risk = {"*": "write", "get_*": "read", "get_s*": "destructive", "get_secret": "write"}
    rated = reach({"risk": risk})
    liar = made("drop", readOnlyHint=True)
    assert (rated.verdict(liar).risk, rated.verdict(liar).source) == ("write", "config")
    assert [rated.verdict(made(name)).risk for name in ("get_a", "get_sun", "get_secret")] == [
        "read", "destructive", "write",
    ]  # fmt: skip
    tied = reach({"risk": {"get_?": "read", "?et_a": "destructive"}})
    assert tied.verdict(made("get_a")).risk == "destructive"


@requirement("trust:policy:rules")
@pytest.mark.parametrize(
    ("entry", "profile", "denied"),
    [
        ({}, {}, False),
        ({"deny": ["wipe"]}, {}, True),
        ({"deny": ["w*"]}, {"allow": ["*"]}, True),
        ({"deny": ["disk__wipe"]}, {}, False),
        ({}, {"deny": ["disk__wipe"]}, True),
        ({"allow": ["*"]}, {"deny": ["disk__*"]}, True),
        ({"deny": ["@destructive"]}, {}, True),
        ({"deny": ["@write"], "allow": ["@write"]}, {}, True),
        ({}, {"deny": ["@destructive"]}, True),
        ({"deny": ["@destructive"], "risk": {"wipe": "write"}}, {}, False),
        ({"deny": ["@write"], "risk": {"wipe": "read"}}, {}, False),
        ({"prefix": "d", "deny": []}, {"deny": ["d__wipe"]}, True),
    ],
)
def test_deny_beats_allow_in_either_place(entry: dict[str, Any], profile: dict[str, Any], denied: bool) -> None:
    found = reach(entry, **profile)
    decision = found.decide(made(), "name")  # unmarked
    assert isinstance(decision, Refuse if denied else Run)
    assert found.finds(made()) is not denied
    assert bool(decision.verdict.denied) is bool(decision.verdict.lift) is denied


@requirement("trust:policy:rules")
def test_a_rule_for_an_exposed_name_means_the_tool_that_lost_this_name_to_another() -> None:
    renamed = changed(made(), id=ToolId("disk__wipe_3f2a1b"))
    assert not reach(deny=["disk__wipe"]).finds(renamed)
    assert not reach(allow=["disk__wipe"]).verdict(renamed).allowed, "trust is not handed on"


def test_a_profile_reaches_its_servers_alone_and_a_removed_server_not_at_all() -> None:
    found = reach(servers=["mail"])
    assert found.admits("mail") and not found.admits("disk")
    refused = found.decide(made(), "name")
    assert isinstance(refused, Refuse)
    assert refused.change == "add 'disk' to the servers of profile 'dev'"
    gone = reach().decide(made(upstream="gone"), "name")
    assert isinstance(gone, Refuse) and "removed" in gone.reason


@requirement("trust:policy:cache")
def test_a_decision_is_made_once_for_a_definition_and_again_when_it_or_the_config_changes() -> None:
    upstream = FakeUpstream("disk", entry={"deny": ["@destructive"]})
    live = LiveConfig(config_of(upstream))
    policy = TrustPolicy(live)
    found = policy.reach(live.now.profiles[""])
    harmless = made(destructiveHint=False)
    assert found.decide(harmless, "name") is found.decide(harmless, "name")
    assert policy.reach(live.now.profiles[""]) is found
    assert isinstance(found.decide(made(destructiveHint=True), "name"), Refuse)
    live.now = config_of(FakeUpstream("disk", entry={"deny": ["*"]}))
    assert isinstance(policy.reach(live.now.profiles[""]).decide(harmless, "name"), Refuse)


def test_verdicts_are_forgotten_before_they_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretool.server.trust.policy.MOST_KEPT", 3)
    found = reach()
    for number in range(10):
        assert isinstance(found.decide(made(title=str(number)), "name"), Run)
        assert len(found._verdicts) <= 3 and len(found._decisions) <= 3


@requirement("trust:policy:one-point")
def test_no_other_file_asks_a_profile_which_servers_it_has() -> None:
    asking = [
        str(path.relative_to(SERVER))
        for path in sorted(SERVER.rglob("*.py"))
        if re.search(r"profile\.(admits\(|allow\b|deny\b)", path.read_text(encoding="utf-8"))
    ]
    assert asking == ["trust/policy.py"]
