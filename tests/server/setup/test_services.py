"""Files that have the system start foretool."""

from __future__ import annotations

import plistlib
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
from requirements import requirement

from foretool.server.setup.clients import Machine, System
from foretool.server.setup.services import LABEL, Service, ServiceError, describe_service, path_in

HOSTILE = '/home/ann/50% "off" $HOME/a\\b/mcp.json'
LAUNCH = ["/opt/foretool/bin/foretool", "serve", "--config", HOSTILE, "--http"]
WORD = "{http://schemas.microsoft.com/windows/2004/02/mit/task}"


def service(system: System, home: Path, launch: list[str] = LAUNCH) -> Service:
    environ = {"PATH": "/usr/bin:.:/bin", "APPDATA": str(home / "AppData")}
    return describe_service(Machine(system, home, environ, home), launch, home / "mcp.json")


@requirement("setup:service")
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_its_unit_and_reads_each_word_as_it_is_meant(tmp_path: Path) -> None:
    program = tmp_path / "a b 50%" / "foretool"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    found = service("linux", tmp_path, [str(program), *LAUNCH[1:]])
    unit = tmp_path / "foretool.service"
    unit.write_bytes(found.content)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    said = [line for line in done.stderr.splitlines() if str(unit) in line or "foretool.service" in line]
    assert (done.returncode, said) == (0, []), done.stderr
    broken = tmp_path / "broken.service"
    broken.write_bytes(found.content.replace(b"Type=exec", b"Type=nonsense"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(broken)], capture_output=True, text=True, timeout=60, check=False
    )
    assert "nonsense" in done.stderr, "it would tell"


@requirement("setup:service")
def test_a_unit_has_no_folder_of_the_working_folder_in_its_path_and_starts_again(tmp_path: Path) -> None:
    found = service("linux", tmp_path)
    text = found.content.decode()
    assert 'Environment="PATH=/usr/bin:/bin"' in text and "Restart=on-failure" in text and "UMask=0077" in text
    assert '"/home/ann/50%% \\"off\\" $$HOME/a\\\\b/mcp.json"' in text
    assert found.path == tmp_path / ".config/systemd/user/foretool.service"


@requirement("setup:service")
def test_launchd_gets_a_property_list(tmp_path: Path) -> None:
    found = service("darwin", tmp_path)
    read = plistlib.loads(found.content)
    assert (read["Label"], read["ProgramArguments"]) == (LABEL, LAUNCH)
    assert found.path == tmp_path / "Library/LaunchAgents/foretool.serve.plist"


@requirement("setup:service")
def test_windows_gets_a_task_whose_words_are_quoted(tmp_path: Path) -> None:
    launch = ["C:\\Program Files\\foretool.exe", "serve", "--config", 'C:\\a "b"\\<c>&d\\']
    found = service("win32", tmp_path, launch)
    action = ElementTree.fromstring(found.content.decode("utf-16")).find(f"{WORD}Actions/{WORD}Exec")
    assert action is not None
    assert action.findtext(f"{WORD}Command") == launch[0]
    assert action.findtext(f"{WORD}Arguments") == 'serve --config "C:\\a \\"b\\"\\<c>&d\\\\"'


@requirement("setup:service")
def test_what_systemd_does_not_start_is_said_before_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="no program with quotes"):
        service("linux", tmp_path, ['/a "b"/foretool', "serve"])


@requirement("setup:service")
@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_a_path_cannot_add_a_line(system: System, tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="holds characters that no service file can"):
        service(system, tmp_path, ["/a\nExecStartPre=/bin/evil", "serve"])


@requirement("setup:service")
@pytest.mark.parametrize("system", ["linux", "darwin"])
@pytest.mark.parametrize("path", ["/usr/bin:/bin", '/a "b"\\c/50%/$x:/bin'])
def test_the_path_of_a_written_service_is_read_back(system: System, path: str, tmp_path: Path) -> None:
    machine = Machine(system, tmp_path, {"PATH": path}, tmp_path)
    written = describe_service(machine, ["/foretool", "serve"], tmp_path / "mcp.json").content
    assert path_in(written) == path
    other = Machine(system, tmp_path, {"PATH": "/elsewhere"}, tmp_path)
    assert describe_service(other, ["/foretool", "serve"], tmp_path / "mcp.json", path).content == written


@pytest.mark.parametrize("content", [b"", b"# mine", b"<?xml broken", b"<?xml version='1.0'?><a/>", b"\xff\xfe<"])
def test_a_file_of_somebody_else_names_no_path(content: bytes) -> None:
    assert path_in(content) == ""


@requirement("setup:service")
@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_the_path_of_a_shell_cannot_add_a_line(system: System, tmp_path: Path) -> None:
    machine = Machine(system, tmp_path, {"PATH": "/bin:/a\nExecStartPre=/bin/evil"}, tmp_path)
    with pytest.raises(ServiceError, match="holds characters that no service file can"):
        describe_service(machine, ["/foretool", "serve"], tmp_path / "mcp.json")
