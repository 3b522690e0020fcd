"""Why a server did not start: each text here was printed by the program itself, or is part of what it printed."""

from __future__ import annotations

import pytest

from foretool.server.config.codes import Code
from foretool.server.upstreams.causes import find_cause, last_lines, telling_line

NODE = """
  ^

Error: Cannot find module '/opt/nothere/dist/index.js'
    at Module._resolveFilename (node:internal/modules/cjs/loader:1207:15)
    at node:internal/main/run_main_module:28:49 {
  code: 'MODULE_NOT_FOUND',
  requireStack: []
}

Node.js v20.20.2
"""
NPM = """npm error code E404
npm error 404 Not Found - GET https://registry.npmjs.org/@modelcontextprotocol%2fserver-tme
npm error 404
npm error 404  The requested resource '@modelcontextprotocol/server-tme@*' could not be found or you do not have permission to access it.
npm error 404
npm error 404 Note that you can also install from a
npm error 404 tarball, folder, http url, or git url.
npm error A complete log of this run can be found in: /home/ada/.npm/_logs/2026-11-22T18_42_11_019Z-debug-0.log
"""  # noqa: E501
OLD_NODE = """npm warn EBADENGINE Unsupported engine {
npm warn EBADENGINE   package: 'firecrawl@4.16.0',
npm warn EBADENGINE   required: { node: '>=22.0.0' },
npm warn EBADENGINE   current: { node: 'v20.20.2', npm: '11.19.1' }
npm warn EBADENGINE }
"""
COMPILED = "a compiled part of it is not there, or was built for another Node.js"
UV = "error: No solution found when resolving tool dependencies\n  cause: Because "

PRINTED = [
    (Code.CREDENTIAL_MISSING, "it needs BRAVE_API_KEY", "Error: BRAVE_API_KEY environment variable is required"),
    (Code.CREDENTIAL_MISSING, "it needs SLACK_BOT_TOKEN and SLACK_TEAM_ID",
     "Please set SLACK_BOT_TOKEN and SLACK_TEAM_ID environment variables"),
    (Code.CREDENTIAL_MISSING, "it needs GITLAB_PERSONAL_ACCESS_TOKEN",
     "GITLAB_PERSONAL_ACCESS_TOKEN environment variable is not set"),
    (Code.CREDENTIAL_MISSING, "it needs FIGMA_API_KEY",
     "Either FIGMA_API_KEY or FIGMA_OAUTH_TOKEN is required (via CLI argument or .env file)"),
    (Code.CREDENTIAL_MISSING, "it needs API_KEY",
     "[DEBUG 2026-12-01T00:39:35.238Z] Missing required configuration: API_KEY"),
    (Code.CREDENTIAL_MISSING, "it needs GITHUB_TOKEN", "ERROR missing GITHUB_TOKEN"),
    (Code.CREDENTIAL_MISSING, "it needs NOTION_TOKEN", "FATAL: please set NOTION_TOKEN"),
    (Code.MODULE_MISSING, COMPILED, "Error: Could not locate the bindings file. Tried:\n → /x/better_sqlite3.node"),
    (Code.MODULE_MISSING, COMPILED,
     "Error: The module '/x/better_sqlite3.node'\nwas compiled against a different Node.js version using\n"
     "NODE_MODULE_VERSION 115. This version of Node.js requires\nNODE_MODULE_VERSION 137. Please try re-compiling"),
    (Code.MODULE_MISSING, COMPILED, "Error: No native build was found for platform=linux arch=x64 abi=137"),
    (Code.MODULE_MISSING, COMPILED, 'Error: Could not load the "sharp" module using the linux-x64 runtime'),
    (Code.MODULE_MISSING, "this machine lacks the system library libGL.so.1",
     "ImportError: libGL.so.1: cannot open shared object file: No such file or directory"),
    (Code.MODULE_MISSING, "this machine lacks the system library libgbm.so.1",
     "chrome: error while loading shared libraries: libgbm.so.1: cannot open shared object file: No such file"),
    (Code.MODULE_MISSING, "this machine lacks the system library GLIBC_2.38",
     "/lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by /x/vec0.so)"),
    (Code.CREDENTIAL_MISSING, "it needs SENTRY_ACCESS_TOKEN",
     "Error: No access token was provided.\nRun `sentry-mcp auth login` interactively first, or pass `--access-token`"
     " / `SENTRY_ACCESS_TOKEN`."),
    (Code.CREDENTIAL_MISSING, "it needs GOOGLE_OAUTH_CREDENTIALS",
     "OAuth credentials not found.\n   Set GOOGLE_OAUTH_CREDENTIALS to the path of your credentials file\n"
     "- To use a custom token location, set GOOGLE_CALENDAR_MCP_TOKEN_PATH environment variable"),
    (Code.CREDENTIAL_MISSING, "it needs WIKI_TOKEN",
     "WIKI_TOKEN is required\nOptionally, set WIKI_URL (optional: set WIKI_USER)"),
    (Code.DOCKER_DOWN, "Docker is not running",
     "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
     "\n\nRun 'docker run --help' for more information"),
    (Code.PACKAGE_MISSING, "npm knows no package @modelcontextprotocol/server-tme", NPM),
    (Code.PACKAGE_MISSING, "npm has no such version: @modelcontextprotocol/server-memory@99.0.0",
     "npm error code ETARGET\nnpm error notarget No matching version found for"
     " @modelcontextprotocol/server-memory@99.0.0.\nnpm error notarget In most cases you or one of your dependencies"),
    (Code.PACKAGE_MISSING, "the npm package has no program to run",
     "npm error could not determine executable to run\nnpm error A complete log of this run can be found in: /x.log"),
    (Code.PACKAGE_MISSING, "PyPI has no package mcp-server-tmie",
     f"{UV}mcp-server-tmie was not found in the package registry and you require mcp-server-tmie, we can conclude"),
    (Code.PACKAGE_MISSING, "PyPI has no such package or version: mcp-server-time==99.0",
     f"{UV}there is no version of mcp-server-time==99.0 and you require mcp-server-time==99.0, we can conclude"),
    (Code.PACKAGE_MISSING, "the package has no such program: requests",
     "Installed 5 packages in 6ms\nPackage `requests` does not provide any executables."),
    (Code.MODULE_MISSING, "its Python lacks the module mcp_server_tiem",
     "/usr/bin/python3: No module named mcp_server_tiem"),
    (Code.MODULE_MISSING, "its package not-installed-pkg is not installed",
     "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'not-installed-pkg' imported from /tmp/t.mjs"),
    (Code.FILE_MISSING, "the file to start is not there: /opt/nothere/dist/index.js", NODE),
    (Code.FILE_MISSING, "the file to start is not there: /opt/nothere.py",
     "/usr/bin/python3: can't open file '/opt/nothere.py': [Errno 2] No such file or directory"),
    (Code.FILE_MISSING, "a file or folder that it needs is not there",
     "Warning: Cannot access directory /nonexistent/dir, skipping\n"
     "Error: None of the specified directories are accessible"),
    (Code.PORT_IN_USE, "its port 18098 is in use", "Error: listen EADDRINUSE: address already in use :::18098"),
    (Code.PORT_IN_USE, "its port is in use", "OSError: [Errno 98] Address already in use"),
    (Code.NETWORK_DOWN, "nothing answers on port 6379 of this machine, which it needs",
     "[Redis Error] Connection: redis://localhost:6379\n[Redis Error] Error: connect ECONNREFUSED 127.0.0.1:6379"),
    (Code.NETWORK_DOWN, "it cannot reach the network",
     "  cause: error resolving DNS\n  cause: failed to lookup address information: Name or service not known"),
    (Code.NETWORK_DOWN, "it does not trust the certificate of the network",
     "error: Failed to fetch: https://pypi.org/simple/mcp-server-time/\n  cause: client error (Connect)\n"
     "  cause: invalid peer certificate: UnknownIssuer"),
    (Code.NETWORK_DOWN, "it does not trust the certificate of the network",
     "Error: unable to get local issuer certificate {\n  code: 'UNABLE_TO_GET_ISSUER_CERT_LOCALLY'"),
    (Code.ARGUMENTS_WRONG, "it does not accept its arguments: Error: In-memory databases require --read-write.",
     "Usage: duck [OPTIONS]\nError: In-memory databases require --read-write.\nOptions:\n"
     "  - Add --read-write"),
    (Code.ARGUMENTS_WRONG, "it does not accept its arguments: x: error: unrecognized arguments: --y",
     "usage: x [-h]\nx: error: unrecognized arguments: --y"),
    (Code.ARGUMENTS_WRONG,
     "it does not accept its arguments: Please provide a database URL as a command-line argument",
     "Please provide a database URL as a command-line argument"),
    (Code.ARGUMENTS_WRONG, "uvx does not understand mcp==1.9.0x",
     "error: Failed to parse: `mcp==1.9.0x`\n  cause: after parsing `1.9.0`, found `x`"),
    (Code.RUNTIME_WRONG, "it needs a newer Node.js", "ReferenceError: File is not defined"),
    (Code.RUNTIME_WRONG, "it needs another Node.js (>=22)",
     "npm error code EBADENGINE\nnpm error engine Unsupported engine\nnpm error notsup Required: {\"node\":\">=22\"}"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "what", "printed"), PRINTED)
def test_what_a_program_printed_tells_the_cause(code: Code, what: str, printed: str) -> None:
    found = find_cause(printed.splitlines(), "exited with code 1")
    assert found is not None and (found.code, found.what) == (code, what)
    assert found.do


@pytest.mark.parametrize(
    "printed",
    [OLD_NODE, "Secure MCP Filesystem Server running on stdio", "GitHub MCP Server running on stdio", ""],
)
def test_what_says_nothing_of_a_failure_is_no_cause(printed: str) -> None:
    assert find_cause(printed.splitlines(), "exited with code 1") is None


def test_only_causes_that_a_crowd_can_make_are_tried_again() -> None:
    unsure = {code for code, _, printed in PRINTED if not find_cause(printed.splitlines(), "").certain}  # type: ignore[union-attr]
    assert unsure == {Code.PORT_IN_USE, Code.NETWORK_DOWN}


def test_the_line_that_says_why_is_found_among_those_around_it() -> None:
    assert telling_line(NODE.splitlines()) == "Error: Cannot find module '/opt/nothere/dist/index.js'"
    assert telling_line(NPM.splitlines()).startswith("npm error 404 Not Found - GET")
    assert telling_line(["starting", "it broke", "Node.js v20.20.2"]) == "it broke"
    assert telling_line(["Node.js v20.20.2", "", "}"]) == ""


def test_the_code_that_node_quotes_is_not_the_reason() -> None:
    unhandled = "node:internal/process/promises:394\n    triggerUncaughtException(err, true);\n    ^\n\n"
    thrown = "/srv/cli.js:34\n        failed('cannot be missing');\n              ^\n\n"
    for quoted in (unhandled, thrown):
        printed = f"{quoted}TypeError: Invalid URL\n    at new URL (node:internal/url:840:25)".splitlines()
        assert telling_line(printed) == last_lines(printed)[-1] == "TypeError: Invalid URL"
    assert telling_line(["listening on http://localhost:80", "cannot open the database"]) == "cannot open the database"


def test_of_a_traceback_the_last_words_are_told_and_not_the_code_that_it_quotes() -> None:
    printed = """INFO: no config file found, all required settings come from the environment
Traceback (most recent call last):
  File "/srv/app.py", line 9, in <module>
    connect_or_raise("it cannot be missing")
  File "/srv/app.py", line 4, in connect_or_raise
    raise ValueError("could not open the database")
ValueError: could not open the database
ended"""
    assert telling_line(printed.splitlines()) == "ValueError: could not open the database"
    assert "connect" not in " ".join(last_lines(printed.splitlines()))
    without_code = [
        "Traceback (most recent call last):",
        '  File "<frozen app>", line 9, in <module>',
        "KeyError: 'ACME_KEY'",
    ]
    assert telling_line(without_code) == last_lines(without_code)[-1] == "KeyError: 'ACME_KEY'"


def test_the_last_five_lines_that_say_something_are_shown() -> None:
    assert last_lines(["a", "b", "", "c", " ", "d", "    at x (y.js:1)", "e", "f"]) == ("b", "c", "d", "e", "f")
    assert last_lines(NODE.splitlines()) == ("Error: Cannot find module '/opt/nothere/dist/index.js'",)
    assert last_lines(["Node.js v20.20.2"]) == ("Node.js v20.20.2",)


def test_a_hostile_text_takes_no_time_and_names_one_word_at_most() -> None:
    long = ["npm error 404 " + "/" * 390] * 10 + ["EACCES " + "'" * 390] * 10
    found = find_cause(long, "exited with code 1")
    assert found is None or len(found.what) < 300
    braces = find_cause(["No module named {0.__class__}"], "exited")
    assert braces is None or "__class__" not in braces.what or "{" not in braces.what
