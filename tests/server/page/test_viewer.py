"""What somebody may see who may see one profile alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_fakes import write_config
from starlette.requests import Request

from foretool.server.config.loader import load
from foretool.server.page.viewer import VIEWER, Viewer, admits, viewer_of


def test_a_profile_admits_its_servers_alone(tmp_path: Path) -> None:
    config = load(write_config(tmp_path, profiles={"work": {"servers": ["calc"]}}))
    assert [admits(config, Viewer("key", "work"), name) for name in ("calc", "sky")] == [True, False]
    assert admits(config, Viewer("key"), "sky") and admits(config, Viewer("key", ""), "sky")
    assert not admits(config, Viewer("key", "gone"), "calc")


def test_a_request_that_nobody_let_in_has_no_viewer() -> None:
    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    with pytest.raises(KeyError):
        viewer_of(Request(scope))
    assert viewer_of(Request({**scope, VIEWER: Viewer("key")})).sees_all
