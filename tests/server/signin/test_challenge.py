"""Challenges, as servers write them."""

from __future__ import annotations

import pytest

from foretool.server.signin.challenge import join_scopes, read_challenge, write_challenge
from foretool.server.signin.record import Challenge


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        (None, Challenge()),
        ("Bearer", Challenge()),
        ('Bearer realm="x", scope="read write"', Challenge("", "read write")),
        ("Bearer scope=read,error=insufficient_scope", Challenge("insufficient_scope", "read")),
        ('Bearer error_description="scope=all", scope="read"', Challenge("", "read")),
        (
            'Bearer resource_metadata="https://x.example/.well-known/oauth-protected-resource", error="invalid_token"',
            Challenge("invalid_token", "", "https://x.example/.well-known/oauth-protected-resource"),
        ),
        ('Bearer scope="a\\"b"', Challenge()),
        ('Bearer scope="lé"', Challenge()),
        ("Bearer " + 'scope="' + "a" * 100_000, Challenge()),
    ],
)
def test_a_challenge_is_read(header: str | None, wanted: Challenge) -> None:
    assert read_challenge(header) == wanted


def test_what_is_written_reads_the_same() -> None:
    challenge = Challenge("insufficient_scope", "read write", "https://x.example/meta")
    assert read_challenge(write_challenge(challenge)) == challenge


def test_scopes_are_joined_in_their_order() -> None:
    assert join_scopes("read write", "", "write admin") == "read write admin"
