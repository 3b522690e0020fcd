"""Whether a form comes from a page of ours."""

from __future__ import annotations

from urllib.parse import urlsplit

from foretool.server.protocol.headers import Headers


def is_from_here(headers: Headers) -> bool:
    """Tell whether a request comes from a page of the same host and port, as browsers say it."""
    if (headers.get("sec-fetch-site") or "same-origin") != "same-origin":
        return False
    try:
        sent = urlsplit(headers.get("origin") or "")
    except ValueError:
        return False
    return sent.scheme in ("http", "https") and sent.netloc.lower() == (headers.get("host") or "").lower()
