"""Settings in force, and never a secret."""

from __future__ import annotations

from pathlib import Path

from command_fakes import write_config

from foretool.desk.page.settings import read_settings
from foretool.desk.page.viewers import Viewer
from foretool.server.config.loader import load

SECRET = "sk-5f8a0c1d9e7b3a2f"


def test_values_of_the_file_and_defaults_are_told_apart_and_secrets_stay_out(tmp_path: Path) -> None:
    path = write_config(
        tmp_path, {"calc": {"command": "calc", "env": {"KEY": SECRET}}}, list_tokens=3000, token=SECRET + "x",
        encoder_key=SECRET, encoder_url=f"http://127.0.0.1/{SECRET}", encoder="m",
        tokens=[{"name": "laptop", "token": SECRET + "yy", "profiles": ["default"]}],
    )  # fmt: skip
    page = read_settings(load(path), Viewer("key"))
    rows = {row.name: row for row in page.rows}
    assert (rows["list_tokens"].value, rows["list_tokens"].is_default) == ("3000", False)
    assert rows["answer_tokens"].is_default
    assert rows["token"].value == rows["encoder_key"].value == "set; not shown"
    assert page.tokens == [("laptop", "default")]
    assert SECRET not in repr(page)


def test_one_profile_sees_its_own_settings_alone(tmp_path: Path) -> None:
    path = write_config(tmp_path, profiles={"work": {"servers": ["calc"], "about": "day"}, "home": {"about": "night"}})
    page = read_settings(load(path), Viewer("key", "work"))
    assert (page.path, page.storage, page.rows, page.tokens) == ("", "", (), ())
    ((name, rows),) = page.profiles
    assert name == "work" and {row.name: row.value for row in rows}["about"] == "day"
