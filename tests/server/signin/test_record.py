"""What is kept of a sign-in."""

from __future__ import annotations

import pytest
from requirements import requirement
from sign_ins import a_record, a_server

from foretool.server.signin.record import Challenge, fits_server, join_scopes, read_challenge, write_challenge


def test_a_token_is_renewed_a_minute_before_it_expires_and_a_short_one_after_three_quarters() -> None:
    assert a_record(received_at=1000, expires_at=4600).renew_at == 4540
    assert a_record(received_at=1000, expires_at=1040).renew_at == 1030
    assert a_record(received_at=1000, expires_at=0).renew_at == 0
    assert a_record(received_at=1000, expires_at=4600, refresh_token="").renew_at == 0


def test_no_representation_shows_a_secret() -> None:
    record = a_record(client_secret="hush-0123456789")
    assert not any(secret in repr(record) for secret in record.secrets)
    public, secret = record.split()
    assert set(secret.values()) == set(record.secrets) and not set(record.secrets) & set(public.values())


@requirement("trust:sign-in:token")
def test_a_sign_in_fits_its_address_client_and_grant_alone() -> None:
    record = a_record()
    assert fits_server(record, a_server())
    assert not fits_server(record, a_server("https://mcp.example/other"))
    assert not fits_server(record, a_server(oauth={"client_id": "another"}))
    machine = {"grant": "client_credentials", "client_id": "us", "client_secret": "s3", "issuer": "https://a.example"}
    assert not fits_server(record, a_server(oauth=machine))


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
