"""Errors of the config in words: the key, what was expected, what was found, the way out."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from foretool.server.config import loader
from foretool.server.config.errors import (
    ConfigError,
    Invalid,
    convert,
    dotted,
    printable_line,
    refuse_unknown,
    split_place,
)
from foretool.server.config.settings import ServerEntry, Settings


@pytest.mark.parametrize(
    ("kind", "value", "path", "problem"),
    [
        (ServerEntry, {"command": ["npx"]}, ("command",), 'a string, found a list; put the arguments in "args"'),
        (ServerEntry, {"args": "-y"}, ("args",), "a list, found a string; write each argument as an item of its own"),
        (ServerEntry, {"args": ["a", 1]}, ("args", 1), "a string, found a number; put it in double quotes"),
        (ServerEntry, {"env": {"A": "1", "B": []}}, ("env", "B"), "a string, found a list; write one string"),
        (ServerEntry, {"disabled": "no"}, ("disabled",), "true or false, found a string; write it without quotes"),
        (ServerEntry, {"timeout_s": -1}, ("timeout_s",), "at least 0, found -1; the default is 60"),
        (Settings, {"list_tokens": 1.5}, ("list_tokens",), "a whole number, found a number; leave out the fraction"),
        (Settings, {"max_message_mib": 0}, ("max_message_mib",), "more than 0, found 0; the default is 32"),
        (Settings, {"encoder": ""}, ("encoder",), "a string that is not empty; the default is auto"),
        (
            Settings,
            {"profiles": {"a": {}, "b": {"policy": "x"}}},
            ("profiles", "b", "policy"),
            'one of "auto", "frozen", "growing", "full"; found \'x\'',
        ),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(
    kind: type[msgspec.Struct], value: Any, path: tuple[Any, ...], problem: str
) -> None:
    with pytest.raises(Invalid) as caught:
        convert(value, kind, ("here",))
    assert (caught.value.path, str(caught.value)) == (("here", *path), f"expected {problem}")


def test_a_misspelt_setting_is_refused_with_the_near_name() -> None:
    with pytest.raises(Invalid, match=r'no such setting; did you mean "list_tokens"\?') as caught:
        refuse_unknown({"policy": "auto", "list_token": 1}, Settings, ("foretool",))
    assert caught.value.path == ("foretool", "list_token")


def test_keys_are_written_as_a_path() -> None:
    assert dotted(("mcpServers", "@acme/x", "args", 1)) == "mcpServers.@acme/x.args[1]"
    assert dotted(("mcpServers", "a b.c\n")) == 'mcpServers."a b.c\\n"'
    assert printable_line("x\u2028" * 200).isprintable()


@pytest.mark.parametrize("depth", [200, 600, 900, 2000])
def test_brackets_of_any_depth_are_one_line_about_what_is_wrong(depth: int) -> None:
    """Found by fuzzing: between what the decoder reads and what the scanner does, the line was a traceback."""
    text = b'{"x": %b1%b}' % (b"[" * depth, b"]" * depth)
    with pytest.raises(ConfigError, match=r"^mcp\.json:1:1: (expected \"mcpServers\"|brackets are nested too deeply)"):
        loader.parse(text, Path("mcp.json"), {})


def test_a_message_is_taken_apart_into_its_place_and_its_problem() -> None:
    assert split_place("/a b/mcp.json:4:7: mcpServers.git.args: expected a list; found 3: no list") == (
        "/a b/mcp.json", "mcpServers.git.args", "expected a list; found 3: no list",
    )  # fmt: skip
    assert split_place("x.json:1:2: foretool.pin: expected 3").without_file == "foretool.pin: expected 3"
    assert split_place("x.json:1:2: expected ':'") == ("x.json", "", "expected ':'")
    assert split_place("exited with code 3: ValueError: 4:5") == ("", "", "exited with code 3: ValueError: 4:5")
