"""Which requests no page answers, and that a form of ours comes from the same host and port."""

from __future__ import annotations

import pytest

from foretool.desk.page.page_rules import HEADERS, is_from_here, refusal_of
from foretool.server.protocol.headers import Headers

HOST = (b"host", b"127.0.0.1:4000")


def test_other_sites_and_other_methods_are_refused() -> None:
    assert refusal_of("GET", Headers([])) is None
    assert refusal_of("POST", Headers([(b"sec-fetch-site", b"same-origin")])) is None
    for site in (b"cross-site", b"same-site"):
        assert (refusal_of("GET", Headers([(b"sec-fetch-site", site)])) or (0,))[0] == 403
    assert (refusal_of("PUT", Headers([])) or (0,))[0] == 405


def test_nothing_foreign_may_be_loaded_or_run() -> None:
    policy = HEADERS["content-security-policy"]
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy and "http" not in policy
    assert "form-action 'self'" in policy and "frame-ancestors 'none'" in policy


@pytest.mark.parametrize(
    ("origin", "is_ours"),
    [
        (b"http://127.0.0.1:4000", True), (b"https://127.0.0.1:4000", True), (b"HTTP://127.0.0.1:4000", True),
        (b"null", False), (b"", False), (b"http://127.0.0.1", False), (b"http://127.0.0.1:4000.evil.example", False),
        (b"http://evil@127.0.0.1:4000", False), (b"file://127.0.0.1:4000", False), (b"http://[", False),
    ],
)  # fmt: skip
def test_the_origin_is_compared_as_a_whole(origin: bytes, is_ours: bool) -> None:
    assert is_from_here(Headers([HOST, (b"origin", origin)])) is is_ours


def test_what_the_browser_says_of_the_site_counts_too() -> None:
    own = (b"origin", b"http://127.0.0.1:4000")
    assert not is_from_here(Headers([HOST]))
    for site in (b"cross-site", b"same-site", b"none"):
        assert not is_from_here(Headers([HOST, own, (b"sec-fetch-site", site)]))
