"""Log lines: to stderr, on the config's level, without its secrets."""

from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretool.server.config.loader import Config, parse
from foretool.server.system import logs
from foretool.server.system.logs import printable, printable_json


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("foretool")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def config(secret: str, level: str = "info", form: str = "text") -> Config:
    servers = {"one": {"command": "x", "env": {"TOKEN": secret}}}
    own = {"log_level": level, "log_format": form}
    return parse(json.dumps({"mcpServers": servers, "foretool": own}).encode(), Path("mcp.json"), {})


def test_a_secret_is_scrubbed_from_messages_and_tracebacks() -> None:
    said = io.StringIO()
    logs.start_logging(config("hush-hush"), said)
    try:
        int("hush-hush")
    except ValueError:
        logging.getLogger("foretool.app").exception("upstream said %s", "hush-hush")
    assert said.getvalue().startswith("foretool: ERROR: upstream said [TOKEN] | Traceback")
    assert said.getvalue().count("\n") == 1
    assert "hush-hush" not in said.getvalue()


def test_a_reload_brings_its_secrets_and_its_level() -> None:
    said = io.StringIO()
    logs.start_logging(config("hush-hush"), said)
    logs.reload_logging(config("new-secret", "error"))
    logging.getLogger("foretool").warning("not any more")
    logging.getLogger("foretool").error("new-secret")
    assert said.getvalue() == "foretool: ERROR: [TOKEN]\n"


def test_lines_for_programs_are_json_without_secrets_or_control_characters() -> None:
    said = io.StringIO()
    logs.start_logging(config("hush-hush", form="json"), said)
    try:
        int("hush-hush")
    except ValueError:
        logging.getLogger("foretool.app").exception('upstream said "%s"\x1b[2J\nforetool: ERROR', "hush-hush")
    (line,) = said.getvalue().splitlines()
    told = json.loads(line)
    assert set(told) == {"time", "level", "logger", "message"}
    assert (told["level"], told["logger"]) == ("error", "foretool.app") and told["time"].endswith("Z")
    assert told["message"].startswith('upstream said "[TOKEN]" [2J | foretool: ERROR | Traceback')
    assert "hush-hush" not in line and "\x1b" not in line
    logs.reload_logging(config("other-secret"))
    logging.getLogger("foretool.app").info("now plain")
    assert said.getvalue().splitlines()[-1] == "foretool: INFO: now plain"


def test_a_character_that_is_not_printable_becomes_a_space() -> None:
    assert printable("a\x1b\x9b\u202e\x7fb\nc") == "a    b c"
    assert printable("a\x1bb\nc", keep="\n") == "a b\nc"


@pytest.mark.slow
@given(st.recursive(st.text() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_keeps_its_value_and_has_printable_lines(value: object) -> None:
    written = printable_json(json.dumps(value, ensure_ascii=False, indent=2).encode("utf-8", "surrogatepass"))
    assert json.loads(written) == value
    assert all(line.isprintable() for line in written.decode().split("\n"))


@pytest.mark.parametrize("char", ["\x85", "\u202e", "é", "\U000e0001"])
def test_millions_of_odd_characters_are_written_in_a_moment(char: str) -> None:
    data = json.dumps(char * 1_000_000, ensure_ascii=False).encode()
    began = time.thread_time()
    written = printable_json(data)
    assert time.thread_time() - began < 0.6
    assert json.loads(written) == char * 1_000_000
