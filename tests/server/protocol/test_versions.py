"""The names and numbers of the protocol, against the SDK's."""

from __future__ import annotations

import mcp_types.version as sdk

from foretool.server.protocol import versions


def test_we_know_the_versions_that_the_sdk_knows() -> None:
    assert set(versions.MODERN_VERSIONS) == set(sdk.MODERN_PROTOCOL_VERSIONS)
    assert set(versions.LEGACY_VERSIONS) == set(sdk.HANDSHAKE_PROTOCOL_VERSIONS)


def test_the_latest_version_comes_first() -> None:
    assert max(versions.MODERN_VERSIONS) == versions.LATEST_MODERN
    assert max(versions.LEGACY_VERSIONS) == versions.LATEST_LEGACY
