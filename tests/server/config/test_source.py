"""The text of a config: every error names line and column."""

from pathlib import Path

import pytest

from foretool.server.config import loader
from foretool.server.config.errors import ConfigError


def test_a_bad_server_is_located() -> None:
    text = '{\n  // mine\n  "mcpServers": {\n    "ok": {"command": "x"},\n    "a": {"command": ["npx"]}\n  }\n}'
    assert loader.parse(text.encode(), Path("conf/mcp.json"), {}).broken == {
        "a": 'conf/mcp.json:5:22: mcpServers.a.command: expected a string, found a list; put the arguments in "args"'
    }


@pytest.mark.parametrize("depth", [200, 600, 900, 2000])
def test_brackets_of_any_depth_are_one_line_about_what_is_wrong(depth: int) -> None:
    """Found by fuzzing: between what the decoder reads and what the scanner does, the line was a traceback."""
    text = b'{"x": %b1%b}' % (b"[" * depth, b"]" * depth)
    with pytest.raises(ConfigError, match=r"^mcp\.json:1:1: (expected \"mcpServers\"|brackets are nested too deeply)"):
        loader.parse(text, Path("mcp.json"), {})
