"""The names and numbers of the protocol, against the SDK's."""

from __future__ import annotations

import mcp_types.version as sdk

from foretool.server import protocol


def test_we_know_the_versions_that_the_sdk_knows() -> None:
    assert set(protocol.MODERN_VERSIONS) == set(sdk.MODERN_PROTOCOL_VERSIONS)
    assert set(protocol.LEGACY_VERSIONS) == set(sdk.HANDSHAKE_PROTOCOL_VERSIONS)


def test_the_latest_version_comes_first() -> None:
    assert max(protocol.MODERN_VERSIONS) == protocol.LATEST_MODERN
    assert max(protocol.LEGACY_VERSIONS) == protocol.LATEST_LEGACY
