"""What holds for every answer of the page, and which requests it refuses; imports nothing of the page."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from foretool.server.protocol.headers import Headers

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-security-policy": _POLICY,
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # With "no-referrer" browsers send no usable Origin with a form, which `forms` asks for.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def refusal_of(method: str, headers: Headers) -> tuple[int, str, dict[str, str]] | None:
    """Return status, text and headers of what is said to a request of another site, or with a method that no page has;
    None if it may go on."""
    if (headers.get("sec-fetch-site") or "none") not in ("none", "same-origin"):
        return 403, "Other sites may not show or read this page.\n", {}
    if method not in ("GET", "HEAD", "POST"):
        return 405, "The page knows GET, HEAD and POST.\n", {"allow": "GET, HEAD, POST"}
    return None


def cookie_of(headers: Headers, name: str) -> str:
    """Return the value of a cookie of ours, "" where there is none. Everybody may send thousands of others, and `http`
    takes milliseconds to read those. Of two with one name the first counts: its path is the longer one (RFC 6265)."""
    found = re.search(rf"(?:^|;) *{name}=([\w-]+)", headers.get("cookie") or "", re.ASCII)
    return found[1] if found is not None else ""


def is_from_here(headers: Headers) -> bool:
    """Return whether a request comes from a page of the same host and port, as browsers say it."""
    if (headers.get("sec-fetch-site") or "same-origin") != "same-origin":
        return False
    try:
        sent = urlsplit(headers.get("origin") or "")
    except ValueError:
        return False
    return sent.scheme in ("http", "https") and sent.netloc.lower() == (headers.get("host") or "").lower()
