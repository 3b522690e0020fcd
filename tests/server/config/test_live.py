"""The config in force."""

from __future__ import annotations

from fakes import FakeUpstream, config_of

from foretool.server.config.live import LiveConfig


def test_who_holds_the_live_config_sees_a_reload() -> None:
    live = LiveConfig(config_of(FakeUpstream("calc", entry={"prefix": "c"}), record="off"))
    assert (live.prefix("calc"), live.prefix("mail"), live.keeps_text) == ("c", "mail", False)
    live.now = config_of(FakeUpstream("calc"), profiles={"work": {"servers": ["calc"]}})
    assert (live.prefix("calc"), live.keeps_text) == ("calc", True)
    assert (live.profile("work").name, live.profile("gone").name) == ("work", "")
