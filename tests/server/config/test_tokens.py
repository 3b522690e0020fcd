"""The tokens of HTTP clients in the config."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from pathlib import Path
from random import Random
from typing import Any

import pytest

from foretool.server.config import loader
from foretool.server.config.errors import ConfigError
from foretool.server.config.loader import Config
from foretool.server.config.settings import TokenEntry
from foretool.server.config.tokens import digest, find_problems, opens_profile, weakness

STRONG = "q8Zr_2LxVn0pTfYw7sKd"


def read(**settings: Any) -> Config:
    data = json.dumps({"mcpServers": {}, "foretool": settings}).encode()
    return loader.parse(data, Path("mcp.json"), {"WORK": STRONG})


def test_a_token_is_kept_as_its_digest_and_a_variable_is_expanded() -> None:
    config = read(tokens=[{"name": "a", "token": "${WORK}", "profiles": ["*"]}])
    assert config.settings.tokens[0].sha256 == digest(STRONG)
    assert STRONG not in repr(config.settings.tokens)
    assert config.secrets.redact(f"sent {STRONG}") == "sent [token a]"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"token": "x", "profiles": ["*"]}, 'tokens[0]: expected a "name"'),
        ({"name": "a", "profiles": ["*"]}, 'tokens[0]: expected either "sha256" or "token"; run `foretool token new`'),
        ({"name": "a", "token": "x", "sha256": "0" * 64, "profiles": ["*"]}, 'expected either "sha256" or "token"'),
        ({"name": "a", "token": "x"}, 'expected "profiles"'),
        ({"name": "a", "sha256": "abc", "profiles": ["*"]}, "tokens[0].sha256: expected 64 hexadecimal digits"),
        ({"name": "a", "profile": "abc"}, 'tokens[0].profile: no such setting; did you mean "profiles"?'),
        ("abc", "tokens[0]: expected an object, found a string"),
    ],
)
def test_a_wrong_entry_is_an_error_with_its_place_and_a_way_out(entry: Any, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(tokens=[entry])
    assert said in str(error.value)


def test_two_tokens_have_two_names() -> None:
    entry = {"name": "a", "sha256": "0" * 64, "profiles": ["*"]}
    with pytest.raises(ConfigError, match="'a' names two tokens"):
        read(tokens=[entry, entry])


def test_a_pattern_without_a_profile_is_a_warning() -> None:
    tokens = [{"name": "a", "token": STRONG, "profiles": ["work", "wrok", "default", "p*"]}]
    warnings = [each for each in read(tokens=tokens, profiles={"work": {}, "play": {}}).warnings if "tokens" in each]
    assert len(warnings) == 1
    assert "foretool.tokens[0].profiles: 'wrok' matches no profile" in warnings[0]


@pytest.mark.parametrize(
    ("patterns", "profile", "opened"),
    [
        (("default",), "", True),
        (("",), "", True),
        (("*",), "", True),
        (("d*",), "", False),
        (("?*",), "", False),
        (("work",), "", False),
        (("default",), "work", False),
        (("w*",), "work", True),
        (("*",), "work", True),
        ((), "", False),
    ],
)
def test_a_token_opens_what_its_patterns_name(patterns: tuple[str, ...], profile: str, opened: bool) -> None:
    assert opens_profile(patterns, profile, ["", "work", "dev"]) is opened


def test_a_profile_may_be_called_default() -> None:
    profiles = ["", "default"]
    assert [opens_profile(("default",), profile, profiles) for profile in profiles] == [False, True]


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a",
        "s3cret",
        "hunter2hunter2",
        "a" * 40,
        "0123456789abcdefgh",
        "abababababababababab",
        "your-secret-token-here",
        "my-super-secret-foretool-token",
        "password12345678",
        "changeme-changeme-changeme",
        "12345678901234567890",
    ],
)
def test_what_could_be_guessed_is_weak(token: str) -> None:
    assert weakness(TokenEntry(name="a", token=token, sha256=digest(token)))


def test_what_is_random_is_strong() -> None:
    # The same at each run: one of a few thousand short ones looks like a row of characters by chance.
    made = [Random(seed).randbytes(size) for seed in range(30) for size in (32, 10)]
    random = [write(each) for each in made for write in (lambda raw: urlsafe_b64encode(raw).decode(), bytes.hex)]
    weak = [token for token in random if weakness(TokenEntry(name="a", token=token, sha256=digest(token)))]
    assert weak == []
    assert weakness(TokenEntry(name="a", sha256=digest("changeme")))
    assert not weakness(TokenEntry(name="a", sha256=digest(STRONG)))


def test_a_weak_or_doubled_token_is_a_problem_with_a_way_out() -> None:
    settings = read(
        token="short", tokens=[{"name": name, "token": STRONG, "profiles": ["*"]} for name in "ab"]
    ).settings
    problems = [problem for _, problem in find_problems(settings)]
    assert problems[0].startswith(
        "token has 5 characters, fewer than 16, so it could be guessed; run `foretool token new`"
    )
    assert problems[1].startswith("token 'b' is the same as 'a'; give each client its own: run `foretool token new`")
    assert STRONG not in str(problems)
