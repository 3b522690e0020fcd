"""What somebody may see who may see one profile alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_fakes import write_config
from msgspec import convert
from msgspec.structs import replace
from starlette.requests import Request

from foretool.desk.page.viewer import VIEWER, Viewer, admits, viewer_of
from foretool.server.config.loader import load
from foretool.server.config.settings import PerUserEntry


def test_a_profile_admits_its_servers_alone(tmp_path: Path) -> None:
    config = load(write_config(tmp_path, profiles={"work": {"servers": ["calc"]}}))
    assert [admits(config, Viewer("key", "work"), name) for name in ("calc", "sky")] == [True, False]
    assert admits(config, Viewer("key"), "sky") and admits(config, Viewer("key", ""), "sky")
    assert not admits(config, Viewer("key", "gone"), "calc")


def test_what_a_server_lists_to_each_person_alone_is_shown_to_nobody_with_one_profile(tmp_path: Path) -> None:
    per_user = {"token_endpoint": "https://login.example/token", "client_id": "a", "client_secret": "s3cret-word"}
    config = load(write_config(tmp_path, profiles={"work": {"servers": ["*"]}}))
    mail = config.servers["calc"]
    entry = convert(per_user, PerUserEntry)
    config = replace(config, servers={**config.servers, "calc": replace(mail, per_user=entry)})
    assert [admits(config, Viewer("key", "work"), name) for name in ("calc", "sky")] == [False, True]
    assert admits(config, Viewer("key"), "calc")


def test_a_request_that_nobody_let_in_has_no_viewer() -> None:
    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    with pytest.raises(KeyError):
        viewer_of(Request(scope))
    assert viewer_of(Request({**scope, VIEWER: Viewer("key")})).sees_all
