"""Secrets leave every text that is written: the known ones by value, the others by their shape."""

from __future__ import annotations

import json
import time

import pytest

from foretool.server.config.variables import collect
from foretool.storage.redaction import Redaction, hide_shapes, looks_random

SECRETS = [
    "ghp_" + "a1B2c3D4e5" * 3,
    "github_pat_" + "11ABCDEFG0" * 4,
    "glpat-" + "x1y2z3a4b5" * 2,
    "sk-proj-" + "abc123DEF4" * 4,
    "sk_live_" + "4eC39HqLyj",
    "AKIA" + "IOSFODNN7EXAMPLE",
    "AIza" + "SyA-1234567890abcdefghijklmnopqrstu",
    "xoxb-" + "123456789012-abcdefABCDEF",
    "npm_" + "abcdefghij" * 3,
    "hf_" + "abcdefghij" * 3,
    "123456789:AA" + "HdqTcvCH1vGWJxfSeofSAs0K5PALDsaw",
    "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." + "dozjgNryP4J3jVmNHl0w",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----",
    "Xk29dLq8Zp4Tn6Wv1Rb7Yc3Mf5",
]


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret[:8])
def test_a_secret_of_a_well_known_shape_leaves_text_json_and_names_of_arguments(secret: str) -> None:
    assert hide_shapes(f"push it with {secret} please") == "push it with [secret] please"
    for value in ({"note": secret, "n": 1}, {secret: "string"}):
        cleaned = hide_shapes(json.dumps(value))
        assert secret[:40] not in cleaned
        assert json.dumps(secret)[1:30] not in cleaned
        assert len(json.loads(cleaned)) == len(value)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("my password is hunter2!", "my password is [secret]"),
        ("PASSWORD=abc123 make", "PASSWORD=[secret] make"),
        ('{"password": "correct horse", "n": 1}', '{"password": "[secret]", "n": 1}'),
        (r'"{\"password\": \"hunter2\"}"', r'"{\"password\": \"[secret]\"}"'),
        ("{'api_key': 'abc def'}", "{'api_key': '[secret]'}"),
        ("postgres://user:s3cret@db/x", "postgres://user:[secret]@db/x"),
        ("curl -H 'X: Bearer abcdef-123456'", "curl -H 'X: Bearer [secret]'"),
        ("Basic dXNlcjpwYXNz", "[secret]"),
        ("password: not-in-any-list9", "password: [secret]"),
        ("token=use,me", "token=[secret],me"),
        ("secret: hunter and more", "secret: [secret] and more"),
        ('{"token": "not set"}', '{"token": "[secret]"}'),
    ],
)
def test_what_stands_where_a_secret_is_written_is_taken_for_one(text: str, cleaned: str) -> None:
    assert hide_shapes(text) == cleaned


@pytest.mark.parametrize(
    "text",
    [
        '{"password": "string", "token": "number", "api_key": "string"}',
        "the token is expired",
        "task-manager-list-all-items-2",
        "getPullRequestReviewCommentsV2Extra",
        "3f786850e387550fdab836ed7e6dc881de23001b",
        "0123456789abcdefghijkl",
        "max tokens: 300, list_tokens: 2000",
        "learn Basic internationalization",
        "token=[GITHUB_TOKEN]",
        "https://example.org/a/b?c=d#e",
        "headers.Authorization: variable NOTION_TOKEN is not set; export it or write ${NOTION_TOKEN:-default}",
        "GITHUB_TOKEN: not set.",
        "token: must be given",
        "Error: API_KEY = undefined",
        "the password is required!",
        "invalid credential: expected a string, found null",
    ],
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert hide_shapes(text) == text


def test_only_mixed_runs_look_random() -> None:
    assert looks_random("Xk29dLq8Zp4Tn6Wv1Rb7")
    assert not looks_random("listPullRequestComments2")
    assert not looks_random("abcdefghijklmnop12345678")


def test_known_secrets_follow_the_config() -> None:
    known = collect([("correct horse", "PHRASE")])
    redaction = Redaction(lambda: known)
    assert redaction.clean("the correct horse") == "the [PHRASE]"
    known = collect([("battery", "OTHER")])
    assert redaction.clean("the correct horse battery") == "the correct horse [OTHER]"
    assert redaction.clean("staple" * 100 + "battery") == "staple" * 100 + "[OTHER]"


def test_a_known_secret_is_found_as_json_and_urls_write_it() -> None:
    secrets = collect([('pä"ss/1', "P")])
    for written in (json.dumps('pä"ss/1'), json.dumps('pä"ss/1', ensure_ascii=False), "x=p%C3%A4%22ss%2F1&y"):
        assert "ss" not in secrets.redact(written)


@pytest.mark.parametrize(
    "text",
    [
        "a" * 100_000, "://" + "a" * 100_000, "password" * 20_000, 'password="' * 20_000, "sk-" * 40_000,
        "-----BEGIN PRIVATE KEY-----" * 5_000, "bearer " * 20_000, "eyJ-" * 40_000, "://a:" * 20_000,
        "token is " * 10_000, 'password:"' + "\\n" * 50_000, "AA:AA" * 20_000, "SG.aaa-" * 20_000,
    ],
    ids=lambda text: text[:10],
)  # fmt: skip
def test_no_text_holds_up_the_search_for_secrets(text: str) -> None:
    began = time.process_time()
    hide_shapes(text)
    assert time.process_time() - began < 2.0  # quadratic ones take minutes
