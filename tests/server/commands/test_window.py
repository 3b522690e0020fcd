"""Which `foretool serve` may share a proxy, and which config it means."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretool.server.commands.window import find_config, may_share, serve_window
from foretool.server.config.files import find_place


@pytest.mark.parametrize("given", [None, "a.json", "/a/../b.json", "~/c.json"])
@pytest.mark.parametrize(
    "more", [{}, {"XDG_CONFIG_HOME": "/etc"}, {"XDG_CONFIG_HOME": "etc"}, {"FORETOOL_CONFIG": "~/d.json"}]
)
def test_the_config_is_the_one_that_serve_reads(given: str | None, more: dict[str, str]) -> None:
    environ = {"HOME": "/home/me", **more}
    assert find_config(given, environ) == str(find_place(Path(given) if given else None, environ).path)


def test_what_serve_would_complain_of_is_left_to_it() -> None:
    assert find_config(None, {"HOME": "/home/me", "FORETOOL_CONFIG": "relative.json"}) is None
    assert find_config(None, {}) is None


def test_http_shares_nothing() -> None:
    for words in (["--http"], ["--http=127.0.0.1:1"], ["--nonsense"]):
        assert serve_window(["serve", *words]) is None


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        ('{"mcpServers": {}}', True),
        ('{"mcpServers": {}, "foretool": {"share": true, "storage": "x"}}', True),
        ('{"mcpServers": {}, "foretool": {"share": false}}', False),
        ('{"mcpServers": {"share": }}', False),
        ('{"mcpServers": {}, "foretool": {"share": 7}}', False),
    ],
)
def test_the_setting_share_decides(tmp_path: Path, text: str, shares: bool) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(text)
    assert may_share(str(path), {"--config": str(path)}) is shares


def test_a_missing_config_is_left_to_serve(tmp_path: Path) -> None:
    assert may_share(str(tmp_path / "none.json"), {}) is False
