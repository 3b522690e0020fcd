"""Takes secrets out of texts: those that the config knows, and whatever looks like a well-known kind of secret.

Every text that the store writes passes through a `Redaction`, and so does every log line. The shapes are our own list:
detect-secrets has more of them, but brings `requests` and `pyyaml` and reads files rather than texts.

A shape is looked for only where its first characters occur, so a text without secrets costs a few substring searches.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Protocol

_HIDDEN: Final = "[secret]"
"""What stands in place of a secret that no setting names."""
_LEAST: Final = 6
"""Shorter texts are left alone: the config knows no shorter secret either."""
_CACHED: Final = 200
"""Longest text whose outcome is remembered: names and keys come again and again."""
_LEAST_RANDOM: Final = 24
"""Shortest run of characters that is taken for a secret because it looks random; our own handles have 22."""
_RANDOM_CHANGES: Final = 0.45
"""Share of neighbours of different kinds (small, capital, digit) from which a run looks random: camelCase has a third,
random letters and digits have three fifths."""

_TOKENS: Final = {
    "gh": r"gh[opusr]_[A-Za-z0-9]{16,}",
    "github_pat_": r"github_pat_\w{16,}",
    "gl": r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|agent|oas)-[\w-]{16,}|glsa_\w{20,}",
    "sk": r"(?<![\w-])sk-(?=[\w-]{0,100}\d)[\w-]{16,}|sk_(?:live|test)_\w{10,}",
    "rk_": r"rk_(?:live|test)_\w{10,}",
    "whsec_": r"whsec_[\w+/=]{16,}",
    "AKIA": r"AKIA[A-Z0-9]{12,}",
    "ASIA": r"ASIA[A-Z0-9]{16}",
    "AIza": r"AIza[\w-]{20,}",
    "ya29.": r"ya29\.[\w-]{20,}",
    "GOCSPX-": r"GOCSPX-[\w-]{16,}",
    "xox": r"xox[a-z]-[A-Za-z0-9-]{10,}",
    "xapp-": r"xapp-[A-Za-z0-9-]{10,}",
    "hooks.slack.com/services/": r"hooks\.slack\.com/services/[\w/]+",
    "npm_": r"npm_[A-Za-z0-9]{20,}",
    "pypi-": r"pypi-[\w-]{30,}",
    "hf_": r"hf_[A-Za-z0-9]{20,}",
    "dop_v1_": r"dop_v1_\w{20,}",
    "SG.": r"(?<![\w-])SG\.[\w-]{16,}\.[\w-]{16,}",
    "shp": r"shp(?:at|ss|ca|pa)_[A-Za-z0-9]{20,}",
    "ntn_": r"ntn_[A-Za-z0-9]{20,}",
    "secret_": r"secret_[A-Za-z0-9]{30,}",
    "lin_api_": r"lin_api_[A-Za-z0-9]{20,}",
    "figd_": r"figd_[\w-]{20,}",
    "tvly-": r"tvly-[\w-]{16,}",
    "dapi": r"dapi[a-f0-9]{32}",
    "AGE-SECRET-KEY-": r"AGE-SECRET-KEY-[A-Z0-9]{20,}",
    ":AA": r"\d{8,10}:AA[\w-]{30,}",
    "asic ": r"[Bb]asic\s{1,3}(?=[\w+/]{0,100}(?:[a-z][A-Z]|[A-Z]{2}|\d|=))[\w+/=]{8,}",
    "eyJ": r"(?<![\w-])eyJ[\w-]{6,}\.[\w-]{6,}\.?[\w-]*",
}  # fmt: skip
"""Tokens of well-known services, by the characters that every one of them contains."""

_SENTENCE = (
    r"-?(?:a|an|and|any|are|as|be|been|cannot|check|could|default|did|do|does|empty|environment|expected|expired|export"
    r"|failed|field|for|found|from|give|has|have|header|in|incorrect|invalid|is|it|malformed|missing|must|my|needed|never"
    r"|no|none|not|null|of|on|or|provide|rejected|required|see|set|should|that|the|this|to|undefined|unknown|unset|use"
    r"|value|variable|was|were|when|with|wrong|you|your)(?=[.,;:!?)}\]\"']{0,4}(?:\s|\Z))"
)
"""Words that go on with a sentence about a secret: `token: not set`, `Authorization: variable X is not set`."""
_PEM = r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY[A-Z ]{0,10}-----[^\"]*?(?:-----END [A-Z0-9 ]{0,40}-----|(?=\")|\Z)"
_LOGIN = r"(://[^/\s:@\"]{0,100}:)[^@/\s\"]{1,300}(?=@)"
_HEADER = r"\b((?:bearer|token)[\s:]{1,3})(?=[\w+/.~=-]{0,300}[\d=])[\w+/.~=-]{8,}"
_NAMED = (
    r"((?:pass(?:word|wd|phrase|code)?|pwd|secret|token|api[_-]?key|(?:access|account|private|secret|auth)[_-]?key"
    r"|credential|authorization|cookie)"
    r"(?:[\\\"']{0,4}\s{0,3}(?:=>|[:=])\s{0,3}))"
    rf"(?!{_SENTENCE})"
    # A record of argument names says the type of each value; a known secret is hidden already.
    r"(?![\\\"']{0,4}(?:(?:string|number|object|array|boolean|null|true|false)(?!\w)|\[[\w.-]{1,80}\]))"
    r"([\\\"']{0,4})(?:(?<=[\"'])(?:[^\"'\\]|\\[^\"'])+|[^\s\"'&,;\\}\]]{3,})"
)
_SAID = (
    r"((?:password|passphrase|passcode|secret|token|api key) is\s{1,3})"
    rf"(?!{_SENTENCE})"
    r"(?=\S{0,100}[\d!@#$%^*])\S{4,}"
)
_SURROUNDED: Final = (
    (("private key",), _PEM, _HIDDEN),
    (("://",), _LOGIN, rf"\g<1>{_HIDDEN}"),
    (("bearer", "token"), _HEADER, rf"\g<1>{_HIDDEN}"),
    ((" is ",), _SAID, rf"\g<1>{_HIDDEN}"),
    (
        ("pass", "pwd", "secret", "token", "key", "credential", "authorization", "cookie"),
        _NAMED,
        rf"\g<1>\g<2>{_HIDDEN}",
    ),
)
"""What surrounds a secret, in any case: words of which each has one, the pattern, and what takes its place."""

_random = re.compile(rf"[A-Za-z0-9+/=_-]{{{_LEAST_RANDOM},}}")
_changes = re.compile(r"(?<=[a-z])[A-Z0-9]|(?<=[A-Z])[a-z0-9]|(?<=[0-9])[A-Za-z]")
_pairs = re.compile(r"(?<=[A-Za-z0-9])[A-Za-z0-9]")


class KnownSecrets(Protocol):
    def redact(self, text: str) -> str:
        """Return the text without secrets."""


class Redaction:
    """Takes known secrets and well-known shapes of secrets out of texts."""

    def __init__(self, known: Callable[[], KnownSecrets] | None = None) -> None:
        """`known` returns the secrets of the config in force; a reload may change them."""
        self.known = known
        self._used: KnownSecrets | None = None
        self._outcomes: dict[str, str] = {}

    def clean(self, text: str) -> str:
        """Return the text with `[NAME]` in place of a secret of the config, and `[secret]` in place of any other."""
        if len(text) < _LEAST:
            return text
        known = self.known() if self.known is not None else None
        if known is not self._used:
            self._used, self._outcomes = known, {}
        if len(text) > _CACHED:
            return hide_shapes(known.redact(text) if known is not None else text)
        found = self._outcomes.get(text)
        if found is None:
            if len(self._outcomes) > 4096:
                self._outcomes.clear()
            found = self._outcomes[text] = hide_shapes(known.redact(text) if known is not None else text)
        return found


def clean_beginning(text: str, redact: Callable[[str], str], most: int, ahead: int) -> str:
    """Return at most `most` characters of the beginning of a text, without the secrets that `redact` knows and without
    what looks like one. `ahead`: how many characters more are read, to recognise a secret that begins among the first.

    Of a longer text, half a secret may stand at the end of what is read, and what is taken out before moves it forward.
    So as many characters go from the end as were read ahead.
    """
    read = text[: most + ahead]
    clean = hide_shapes(redact(read))
    return (clean[:-ahead] if len(read) == most + ahead else clean)[:most]


def hide_shapes(text: str) -> str:
    """Return the text with `[secret]` in place of whatever looks like a secret."""
    for literal in _TOKENS:
        if literal in text:
            text = _token(literal).sub(_HIDDEN, text)
    lower = text.lower()
    for words, pattern, instead in _SURROUNDED:
        if any(word in lower for word in words):
            text = _surrounded(pattern).sub(instead, text)
    if len(text) >= _LEAST_RANDOM:
        text = _random.sub(_hide_random, text)
    return text


def looks_random(text: str) -> bool:
    """Return whether a run of letters and digits looks like a random token rather than like words or a hash in hex."""
    if not (any(map(str.islower, text)) and any(map(str.isupper, text)) and any(map(str.isdigit, text))):
        return False
    return len(_changes.findall(text)) >= _RANDOM_CHANGES * len(_pairs.findall(text))


def _hide_random(match: re.Match[str]) -> str:
    return _HIDDEN if looks_random(match[0]) else match[0]


@lru_cache
def _token(literal: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9])(?:{_TOKENS[literal]})")


@lru_cache
def _surrounded(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)
