"""The form of what is said over a local socket."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from requirements import requirement

from foretool._version import __version__
from foretool.server.local.frames import FORM, decode, digest_variable, encode, refuse_greeting, write_hello
from foretool.server.local.places import ProxyIdentity

HERE = ProxyIdentity("/home/me/mcp.json", "", '/home/me/"work"\n')


def test_a_message_is_one_line_whatever_its_texts_hold() -> None:
    message = {"text": "two\nlines\u2028\r\x00 \U0001f600"}
    line = encode(message)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert decode(line[:-1]) == message


@pytest.mark.parametrize("line", [b"", b"[]", b"7", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_object_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        decode(line)


def test_another_form_and_an_error_are_refused_in_words() -> None:
    assert refuse_greeting({"foretool": FORM}) == ""
    assert refuse_greeting({"foretool": FORM + 1}) == (
        f"expected form {FORM} of the local socket, found '{FORM + 1}'; restart it"
    )
    assert refuse_greeting({"foretool": FORM, "error": "too many callers"}) == "too many callers"


@requirement("trust:windows:environment")
def test_a_greeting_holds_no_value_but_that_of_path() -> None:
    environ = {"PATH": "/bin", "A_TOKEN": "hush-hush-hush", 'odd"name': "\udcff"}
    line = write_hello(HERE, environ, "0a" * 8)
    assert line.endswith(b"\n") and line.count(b"\n") == 1 and b"hush" not in line
    said = json.loads(line)
    salt = bytes.fromhex(said["salt"])
    assert said["environment"] == {name: digest_variable(value, salt) for name, value in environ.items()}
    known = (said["wants"], said["config"], said["profile"], said["folder"], said["version"], said["path"])
    assert known == ("window", HERE.config, "", HERE.folder, __version__, "/bin")


@requirement("trust:windows:environment")
def test_digests_of_two_greetings_cannot_be_compared() -> None:
    one, two = (json.loads(write_hello(HERE, {"A": "same"}, ""))["environment"]["A"] for _ in range(2))
    assert one != two


@requirement("windows:light")
def test_a_window_imports_nothing_that_takes_memory() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import foretool.server.cli, foretool.server.commands.window, foretool.server.local.relay\n"
        "print(' '.join(sys.modules))"
    )
    # Without `site`, whose editable installs import much themselves.
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, root], capture_output=True, text=True, timeout=60, check=True
    )
    heavy = {"typing", "json", "re", "pathlib", "msgspec", "asyncio", "contextlib", "hashlib", "logging", "signal"}
    assert heavy & set(done.stdout.split()) == set()
