"""A form of ours comes from the same host and port."""

from __future__ import annotations

import pytest

from foretool.desk.page.origin import is_from_here
from foretool.server.protocol.headers import Headers

HOST = (b"host", b"127.0.0.1:4000")


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
