"""Our config file keeps comments and order through every edit."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretool.server.setup.documents import DocumentError
from foretool.server.setup.own_servers import OwnServers

TEXT = """{
  // mine
  "mcpServers": {
    "time": {"command": "uvx"}, // clock
    "git": {
      "command": "uvx", // program
      "pin": ["git_log"]
    }
  },
  "foretool": {"pin": [
    "time__*", // clocks
  ]}
}
"""


def edited() -> OwnServers:
    return OwnServers(Path("/x/mcp.json"), TEXT.encode())


def test_switching_off_and_on_gives_the_same_bytes() -> None:
    own = edited()
    for name in ("time", "git"):
        own.switch(name, on=False)
    assert [entry["disabled"] for entry in own.servers().values()] == [True, True]
    for name in ("time", "git", "git"):
        own.switch(name, on=True)
    assert own.text() == TEXT


def test_a_pin_comes_and_goes_with_its_comment_lines_kept() -> None:
    own = edited()
    own.pin("git__*")
    own.pin("git__*")
    assert own.pins() == {"": ["time__*", "git__*"], "git": ["git_log"]}
    assert '"time__*", // clocks\n    "git__*",' in own.text()
    own.unpin("git__*")
    assert own.text() == TEXT
    own.unpin("git_log", "git")
    assert own.pins() == {"": ["time__*"]}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xff", "expected UTF-8"),
        (b"[]", "expected an object"),
        (b'{"mcpServers": []}', "mcpServers: expected an object of servers by name"),
        (b'{"mcpServers": ', "1:16: expected a value"),
    ],
)
def test_a_file_that_cannot_be_edited_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(DocumentError, match=said):
        OwnServers(Path("/x/mcp.json"), data)


def test_an_entry_or_a_list_of_another_kind_is_refused() -> None:
    own = OwnServers(Path("/x/mcp.json"), b'{"mcpServers": {"a": 1}, "foretool": {"pin": "x"}}')
    with pytest.raises(DocumentError, match="expected an object"):
        own.switch("a", on=False)
    with pytest.raises(DocumentError, match=r"foretool\.pin: expected a list"):
        own.pin("x")
