from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.learning.known_tools import main, read_known


def write_catalog(folder: Path) -> None:
    tools = [{"name": "getForecast", "description": "Says how warm it will be"}, {"name": "other"}]
    (folder / "weather.json").write_text(json.dumps({"tools": tools}))


def write_wishes(folder: Path, line: str) -> Path:
    (folder / "out").mkdir()
    (folder / "keys.tsv").write_text("7\tweather\tgetForecast\n")
    (folder / "out" / "one.tsv").write_text(line)
    return folder


def test_wishes_of_a_folder_and_sketches_of_what_servers_list_make_the_file(tmp_path: Path) -> None:
    write_catalog(tmp_path)
    wishes = write_wishes(tmp_path, "7\ta coat?\train at  noon\tthe washing is out\tweather outlook\n")
    main([str(tmp_path), "--wishes", str(wishes), "--out", str(tmp_path / "file")])
    (known,) = read_known(tmp_path / "file")
    assert (known.name, known.server) == ("get forecast", "weather")
    assert known.wishes == ("a coat?", "rain at noon", "the washing is out", "weather outlook")
    assert b"warm" not in (tmp_path / "file").read_bytes(), "what authors wrote stays theirs"


def test_a_line_that_lacks_a_wish_is_named(tmp_path: Path) -> None:
    write_catalog(tmp_path)
    with pytest.raises(SystemExit, match=r"one.tsv:1: expected a number and 4 wishes, found '7\\ta coat"):
        main([str(tmp_path), "--wishes", str(write_wishes(tmp_path, "7\ta coat?\n")), "--out", str(tmp_path / "file")])
