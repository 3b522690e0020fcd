"""Which requests no page answers."""

from __future__ import annotations

from foretool.desk.page.page_rules import HEADERS, refusal_of
from foretool.server.protocol.headers import Headers


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
