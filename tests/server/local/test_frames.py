"""The form of what is said over a local socket."""

from __future__ import annotations

import pytest

from foretool.server.local.frames import FORM, decode, encode, refuse_greeting


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
