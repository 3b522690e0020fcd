"""Why a server failed: one cause, one code and one piece of advice, whoever asks."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
import pytest
from command_fakes import echo, write_config

from foretool.server import doctor
from foretool.server.commands import first_start
from foretool.server.commands.group import run
from foretool.server.config import loader
from foretool.server.config.codes import Code
from foretool.server.config.servers import Server
from foretool.server.setup.installation import program_hint
from foretool.server.transports.upstream.base import LinkError
from foretool.server.transports.upstream.http_client import RequestFailed, follow
from foretool.server.transports.upstream.stdio import Child, _spawn
from foretool.server.upstreams.failures import explain_failure


def server(folder: Path, **entry: object) -> Server:
    return loader.load(write_config(folder, {"one": entry or {"command": "/bin/a"}})).servers["one"]


@pytest.mark.parametrize(
    ("error", "stderr", "code", "do"),
    [
        ("command 'npx' was not found", (), Code.PROGRAM_MISSING, "install Node.js"),
        ("command '/a/b' was not found", (), Code.PROGRAM_MISSING, "correct its command"),
        ("command '/a/sh /x y' was not found", (), Code.PROGRAM_MISSING, 'write "sh" alone as its "command"'),
        ("command 'sh -c x' was not found", (), Code.PROGRAM_MISSING, 'write "sh" alone as its "command"'),
        ("command '/My Files/b' was not found", (), Code.PROGRAM_MISSING, "correct its command"),
        ("cwd '/a' is not a folder", (), Code.FILE_MISSING, 'correct "cwd"'),
        ("exited with code 1", ("GITHUB_TOKEN is not set",), Code.CREDENTIAL_MISSING, "GITHUB_TOKEN is not set here"),
        ("exited with code 1", ("Cannot connect to the Docker daemon",), Code.DOCKER_DOWN, "start Docker"),
        ("exited with code 1", (), Code.SERVER_FAILED, "start '/bin/a' with its args by hand"),
        ("its tools could not be listed: log in", (), Code.TOOLS_NOT_LISTED, "its documentation may say"),
        ("closed its output", (), Code.NOT_MCP, "its command may be no MCP server"),
    ],
)
def test_a_program_that_failed(
    error: str, stderr: tuple[str, ...], code: Code, do: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    found = explain_failure(server(tmp_path), error, stderr)
    assert (found.code, found.do[: len(do)]) == (code, do)


def test_a_remote_server_is_never_told_of_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    found = explain_failure(server(tmp_path, url="https://h/mcp"), "answered HTTP 401: SECRET_TOKEN missing", ())
    assert (found.code, found.do) == (Code.CREDENTIAL_REFUSED, "check its headers, or make a new token")


def test_a_list_over_the_limit_names_the_setting_once_and_no_documentation(tmp_path: Path) -> None:
    reason = "its answer is larger than 32 MiB; raise max_message_mib to read it"
    found = explain_failure(server(tmp_path), f"its tools could not be listed: {reason}", ())
    assert found.code == Code.TOOLS_NOT_LISTED
    assert found.what == "its tools could not be listed: its answer is larger than 32 MiB"
    assert found.do == "raise max_message_mib to read it; it is asked again by itself"


@pytest.mark.parametrize("before", ["", "its tools could not be listed: "])
def test_a_sign_in_that_has_ended_is_named_also_where_the_tools_were_asked_for(before: str, tmp_path: Path) -> None:
    said = f"{before}its sign-in has ended: run `foretool login one` in a terminal"
    found = explain_failure(server(tmp_path, url="https://h/mcp"), said, ())
    assert (found.code, found.do) == (Code.SIGN_IN, "run `foretool login one` in a terminal")


@pytest.mark.parametrize("script", ["exit 3", "echo 'DEMO_KEY is not set' >&2; exit 1", "exit 0"])
def test_add_and_doctor_say_the_same_of_a_failed_start(script: str, tmp_path: Path) -> None:
    path = write_config(tmp_path, {"one": {"command": "/bin/sh", "args": ["-c", script]}})
    (added,) = first_start.start(path, ["one"], as_json=True)
    (found,) = [each for each in doctor.diagnose(loader.load(path)).findings if each.area == "upstream"]
    assert (found.what, found.code, found.do, found.lines) == (
        f"one: {added.error}",
        added.code,
        added.do,
        added.stderr,
    )


def test_add_and_doctor_say_the_same_of_an_entry_that_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path, {"one": {"command": "x", "env": {"A": "${FORETOOL_TEST_UNSET}"}}, "echo": echo()})
    (added,) = first_start.start(path, ["one"], as_json=True)
    assert run(["doctor", "--config", str(path), "--json"]) == 1
    (found,) = [each for each in json.loads(capsys.readouterr().out)["findings"] if each["severity"] == "error"]
    assert (found["what"], found["code"], found["do"]) == (f"one: {added.error}", added.code, added.do)


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        (
            {"command": "no-such-program"},
            "no-such-program is not on PATH [FT201]; install it, or write its full path",
        ),
        (
            {"command": "/no/such/program"},
            "there is no program /no/such/program [FT201]; correct its command, or install it",
        ),
        (
            {"command": "sh", "cwd": "/no/such"},
            "cwd '/no/such' is not a folder [FT309]; correct \"cwd\" of its entry, or make the folder",
        ),
    ],
)
def test_a_failed_start_is_said_with_its_advice_once(entry: dict[str, str], line: str, tmp_path: Path) -> None:
    one = server(tmp_path, **entry)
    with pytest.raises(LinkError) as failed:
        _spawn(Child(one.command, (), {}, entry.get("cwd")), "mark")
    assert ";" not in str(failed.value)
    assert explain_failure(one, str(failed.value), ()).line == line


def test_a_redirect_to_another_origin_is_a_wrong_address_with_one_way_out(tmp_path: Path) -> None:
    remote = server(tmp_path, url="https://one.example/mcp")
    with pytest.raises(RequestFailed) as refused:
        follow("POST", httpx2.URL(remote.url), 308, "https://two.example/mcp")
    assert explain_failure(remote, str(refused.value), ()).line == (
        "answered HTTP 308, a redirect to https://two.example, which is not followed, since credentials must not leave"
        " their origin [FT313]; set its url to where it leads, with the path that it has"
    )


SDK_1 = "AttributeError: 'Server' object has no attribute 'list_resources'"
SDK_2 = "ModuleNotFoundError: No module named 'mcp.server.mcpserver'"
FASTMCP = (
    "ModuleNotFoundError: No module named 'mcp.server.fastmcp'. This is mcp 2.x, where FastMCP was renamed to MCPServer"
)


@pytest.mark.parametrize(
    ("command", "args", "printed", "do"),
    [
        ("uvx", ["mcp-server-sqlite"], SDK_1, 'put "--with", "mcp<2" first in its args'),
        ("uvx", ["mcp-server-sqlite"], FASTMCP, 'put "--with", "mcp<2" first in its args'),
        ("uvx", ["new-server"], SDK_2, 'put "--with", "mcp>=2" first in its args'),
        ("uv", ["run", "server.py"], SDK_1, 'put "--with", "mcp<2" behind "run" in its args'),
        (
            "python3",
            ["-m", "sqlite"],
            SDK_1,
            "give it a Python of its own, because others may need the version that is there: python3 -m venv FOLDER,"
            " then FOLDER/bin/pip install its package and 'mcp<2', and FOLDER/bin/python as its command",
        ),
        ("docker", ["run", "sqlite"], SDK_1, "use another version of its image, or tell its author"),
        ("~/uv/tools/sql/bin/sqlite", [], SDK_1, "uv tool install sql --with 'mcp<2'"),
        ("~/pipx/venvs/sql/bin/sqlite", [], SDK_1, "pipx inject --force sql 'mcp<2'"),
        (
            "sh",
            ["-c", "exec sqlite"],
            SDK_1,
            "start it in a Python of its own with mcp<2 (or mcp>=2 where it is newer than that)",
        ),
    ],
)
def test_a_server_for_another_sdk_gets_the_advice_that_fits_how_it_is_started(
    command: str, args: list[str], printed: str, do: str, tmp_path: Path
) -> None:
    entry = {"command": command.replace("~", str(tmp_path)), "args": args}
    found = explain_failure(server(tmp_path, **entry), "exited with code 1", ("Traceback", printed))
    assert (found.code, found.what, found.do, found.certain) == (
        Code.RUNTIME_WRONG, "it was written for another version of the MCP SDK for Python", do, True,
    )  # fmt: skip


OLD_PYTHON = "ERROR: Package 'sql' requires a different Python: 3.9.1 not in '>=3.12'"
OLD_NODE = 'npm error code EBADENGINE, required: {"node":">=22"}'
_IMAGE = "use another version of its image, or tell its author"


@pytest.mark.parametrize(
    ("command", "args", "printed", "do"),
    [
        ("uvx", ["sql"], OLD_PYTHON, 'put "--python", "3.12" first in its args'),
        ("uvx", ["--python", "3.9", "sql"], OLD_PYTHON,
         'put "3.12" behind the "--python" in its args, in place of what stands there'),
        ("uv", ["run", "sql.py"], OLD_PYTHON, 'put "--python", "3.12" behind "run" in its args'),
        ("pipx", ["run", "sql"], OLD_PYTHON,
         'install Python 3.12, and put "--python", "python3.12" behind "run" in its args'),
        ("docker", ["run", "sql"], OLD_PYTHON, _IMAGE),
        ("~/uv/tools/sql/bin/sql", [], OLD_PYTHON, "uv tool install --force --python 3.12 sql"),
        ("~/pipx/venvs/sql/bin/sql", [], OLD_PYTHON,
         "install Python 3.12, then pipx reinstall --python python3.12 sql"),
        ("python3", ["-m", "sql"], OLD_PYTHON,
         "install the Python that it names, and write its path as the command of the entry"),
        ("npx", ["sql"], OLD_NODE, "install a newer Node.js (https://nodejs.org)"),
        ("podman", ["run", "sql"], OLD_NODE, _IMAGE),
    ],
)  # fmt: skip
def test_a_server_for_another_runtime_gets_the_advice_that_fits_how_it_is_started(
    command: str, args: list[str], printed: str, do: str, tmp_path: Path
) -> None:
    entry = {"command": command.replace("~", str(tmp_path)), "args": args}
    found = explain_failure(server(tmp_path, **entry), "exited with code 1", (printed,))
    assert (found.code, found.do) == (Code.RUNTIME_WRONG, do)


@pytest.mark.parametrize(
    ("installed", "printed", "package", "said"),
    [
        ("2.3.0", SDK_1, "calculator", '"--with", "mcp<2", "calculator"'),
        ("1.30.0", "ModuleNotFoundError: No module named 'mcp.server.context'", "calculator",
         '"--with", "mcp>=2", "calculator"'),
        ("1.30.0", SDK_2, "mcp_calculator", '"--with", "mcp>=2", "--from", "mcp-calculator", "calculator"'),
        ("1.30.0", SDK_2, "", '"--with", "mcp>=2", "--from", "PACKAGE", "calculator"'),
    ],
)  # fmt: skip
def test_a_server_for_another_sdk_gets_its_own_python_so_that_no_other_server_breaks(
    installed: str, printed: str, package: str, said: str, tmp_path: Path
) -> None:
    """The Python of a server is often that of others: installing another SDK there broke three that had worked, and
    the advice for these would have broken the first one again."""
    program = tmp_path / "bin" / "calculator"
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    (packages / f"mcp-{installed}.dist-info").mkdir(parents=True)
    if package:
        (packages / f"{package}-0.2.dist-info").mkdir()
        scripts = "[console_scripts]\ncalculator = c:main\n"
        (packages / f"{package}-0.2.dist-info" / "entry_points.txt").write_text(scripts)
    program.parent.mkdir()
    program.write_text(f"#!{tmp_path}/bin/python3.11\n")
    program.chmod(0o700)
    found = explain_failure(server(tmp_path, command=str(program)), "exited with code 1", (printed,))
    assert found.do.partition("; uvx is not installed")[0] == (
        "start it with uvx in a Python of its own, because others may need the version that is there:"
        f' "command": "uvx", and first in its args {said}'
    )


@pytest.mark.parametrize(
    ("env", "printed", "do"),
    [
        ({"BRAVE_API_KEY": ""}, "Error: BRAVE_API_KEY environment variable is required",
         "its env has BRAVE_API_KEY empty: fill it"),
        ({"BRAVE_API_KEY": "${NEVER_SET_HERE:-}"}, "it needs a key", "its env has BRAVE_API_KEY empty: fill it"),
        ({"GITHUB_TOKEN": "<YOUR_TOKEN>", "OTHER_KEY": " "}, "Error: bad credentials",
         "its env has GITHUB_TOKEN with a placeholder and OTHER_KEY empty: fill them"),
        ({"SLACK_TOKEN": "xoxb-your-bot-token"}, "exit", "its env has SLACK_TOKEN with a placeholder: fill it"),
        ({"DEBUG": ""}, "exit", "start '/bin/a' with its args by hand to see why, or disable it"),
        ({"API_KEY": ""}, "Cannot connect to the Docker daemon",
         "start Docker (or Docker Desktop), then run foretool doctor again"),
    ],
)  # fmt: skip
def test_a_variable_without_a_value_is_named(env: dict[str, str], printed: str, do: str, tmp_path: Path) -> None:
    one = server(tmp_path, command="/bin/a", env=env)
    assert explain_failure(one, "exited with code 1", (printed,)).do == do


def test_a_header_without_a_token_is_named(tmp_path: Path) -> None:
    one = server(tmp_path, url="https://h/mcp", headers={"Authorization": "Bearer "})
    assert explain_failure(one, "answered HTTP 403", ()).do == "its headers have Authorization empty: fill it"


@pytest.mark.parametrize(
    "printed",
    [
        "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'zod' imported from {}/node_modules/a/index.js",
        "Error: Cannot find module '{}/node_modules/a/index.js'",
        "npm error ENOTEMPTY: directory not empty, rename '{}/node_modules/a' -> '{}/node_modules/.a'",
        "  url: 'file://{}/node_modules/a/index.js', code: 'ERR_MODULE_NOT_FOUND'",
    ],
)
def test_a_download_of_npx_that_was_broken_off_is_cured_by_deleting_its_folder(printed: str, tmp_path: Path) -> None:
    folder = tmp_path / "a home" / ".npm" / "_npx" / "15b07286cbcc3329"
    folder.mkdir(parents=True)
    one = server(tmp_path, command="npx", args=["-y", "a"])
    found = explain_failure(one, "exited with code 1", (printed.replace("{}", str(folder)),))
    command = f"rm -rf '{folder}'"
    assert found.do == (
        f"a download of npx was broken off there: delete that folder ({command}), then run foretool doctor again"
    )
    assert found.certain


def test_no_folder_is_to_be_deleted_that_is_not_one_of_npx(tmp_path: Path) -> None:
    one = server(tmp_path, command="npx", args=["-y", "a"])
    for path in (tmp_path, tmp_path / "_npx", "/home/ada /_npx/0123456789ab"):
        printed = f"Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'zod' imported from {path}/x.js"
        assert "rm -rf" not in explain_failure(one, "exited with code 1", (printed,)).do


@pytest.mark.parametrize(
    ("command", "printed", "do"),
    [
        ("npx", "Error: Cannot find module 'zod'", "its package lacks something: choose another version"),
        ("uvx", "No module named pkg_resources", 'put "--with" and the package that has this module before'),
        ("node", "Error: Cannot find module 'zod'", "run npm install in its folder, or start it with npx"),
    ],
)
def test_nobody_is_told_to_start_with_a_launcher_what_it_starts(
    command: str, printed: str, do: str, tmp_path: Path
) -> None:
    found = explain_failure(server(tmp_path, command=command), "exited with code 1", (printed,))
    assert (found.code, found.do[: len(do)]) == (Code.MODULE_MISSING, do)


@pytest.mark.parametrize(
    ("program", "given"),
    [("uvx", "SSL_CERT_FILE"), ("npx", "NODE_EXTRA_CA_CERTS"), ("/bin/node", "NODE_EXTRA_CA_CERTS")],
)
def test_for_a_certificate_only_the_variable_is_named_that_the_program_reads(
    program: str, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CA_BUNDLE", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"):
        monkeypatch.setenv(name, "/c.pem")
    one = server(tmp_path, command=program)
    found = explain_failure(one, "closed its output", ("Caused by: invalid peer certificate: UnknownIssuer",))
    assert found.do.endswith(f'add "inherit": ["{given}"] to its entry')


def test_a_download_that_never_ends_may_lack_a_variable_of_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", "/c.pem")
    slow = "no answer to initialize within 30 s"
    found = explain_failure(server(tmp_path, command="npx", args=["-y", "some-server"]), slow, ())
    assert found.do.startswith("NODE_EXTRA_CA_CERTS is set here but not given to it; if downloads need it, add")
    assert "; else give it more time: foretool doctor one --timeout 120" in found.do
    assert explain_failure(server(tmp_path), slow, ()).do.startswith("give it more time")


def test_a_slow_server_whose_key_is_empty_is_told_of_the_key_first(tmp_path: Path) -> None:
    one = server(tmp_path, command="/bin/a", env={"BRAVE_API_KEY": "", "LEVEL": ""})
    found = explain_failure(one, "no answer to initialize within 30 s", ())
    assert found.code is Code.SERVER_SLOW
    assert found.do.startswith("its env has BRAVE_API_KEY empty: fill it; if it still takes long, give it more time")


def test_what_is_to_be_started_with_a_missing_program_says_how_that_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = ("ModuleNotFoundError: No module named 'mcp'",)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = explain_failure(server(tmp_path), "exited with code 1", said)
    assert found.do.endswith("; uvx is not installed on this machine: first " + program_hint("uvx"))
    (tmp_path / "uvx").write_text("#!/bin/sh")
    (tmp_path / "uvx").chmod(0o755)
    found = explain_failure(server(tmp_path), "exited with code 1", said)
    assert found.do.endswith("start it with uvx")
