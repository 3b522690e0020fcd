"""Windows that share a proxy are measured with their servers, which end with them."""

import pytest

from bench.growth import windows


def test_windows_share_a_proxy_and_no_server_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "SETTLE_S", 0.1)
    monkeypatch.setattr(windows, "IDLE_S", 0.5)
    ((size, row),) = windows.rows([2], servers=2)
    assert (size, row["proxies"], row["server processes"], row["left"]) == (2, 1, 2, 0)
    assert row["RSS MiB"] > 20.0
