"""`foretool doctor`: prints the findings of `server/doctor.py`, with a progress bar while the upstreams start."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import click
from click import UsageError
from msgspec import Struct
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from foretool.server import doctor, probing
from foretool.server.catalog import embedding
from foretool.server.checks.clients import Registered, find_registered
from foretool.server.checks.storage import say_refused
from foretool.server.commands import edits, output, repairs
from foretool.server.commands.options import UnknownName, config_option, json_option, refuse_together
from foretool.server.commands.running import OpenProxy, ask_proxies, say_older_config
from foretool.server.config.codes import Code, explain_code
from foretool.server.config.errors import guess, name_some
from foretool.server.config.files import find_place
from foretool.server.config.loader import Config, load
from foretool.server.diagnosis import Diagnosis, Finding, Severity, TokenSummary, UpstreamCheck, note, problem
from foretool.server.doctor import TIMEOUT_S
from foretool.server.probing import OnProgress, Stage
from foretool.server.system.logs import mute_logging
from foretool.storage.engine import StorageError

_SHOWN: Final = 3
"""How many servers the progress bar names at a time."""
_STYLES: Final[Mapping[Severity, str]] = {"ok": "green", "note": "dim", "warning": "yellow", "error": "red"}
_GROUPS: Final[Sequence[tuple[Severity, str]]] = (("error", "problem"), ("warning", "warning"), ("note", "note"))
_YES: Final = (
    "With --fix: ask nothing, and give no server a variable. With --undo: also bring back a file that was damaged."
)


@click.command("doctor")
@click.argument("names", nargs=-1, metavar="[SERVER]...")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1, max=3600),
    default=TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long one server may take to start and list its tools.",
)
@click.option("--client", metavar="NAME", help="Start the servers with the variables that this client gives foretool.")
@click.option("--fix", "wants_fix", is_flag=True, help="Mend what can be mended, after showing it.")
@click.option("--yes", "-y", "agreed", is_flag=True, help=_YES)
@click.option("--dry-run", is_flag=True, help="With --fix: show what would change, and change nothing.")
@click.option("--explain", "code", metavar="CODE", help="Say what a code such as FT316 means, and check nothing.")
@edits.undo_option
@config_option
@json_option
def command(
    path: Path | None,
    as_json: bool,
    names: tuple[str, ...],
    timeout_s: float,
    client: str | None,
    wants_fix: bool,
    agreed: bool,
    dry_run: bool,
    code: str | None,
    wanted_undo: bool,
) -> int:
    """Check everything and say what to do about each problem. With SERVER, check that server alone.

    Checks the config, the programs it needs, the storage file, the names of tools, the entries of your clients, and
    every server: starts it, keeps the tools that it lists, and ends it again. Running proxies are not disturbed. Exits
    with 1 if anything is wrong.

    --fix mends what is safe to mend: permissions of files, programs that clients do not find, servers that cannot start
    as their entry is, entries of clients that start foretool twice or not at all. It shows the lines that change, asks,
    keeps a copy, and checks again: the exit status is that of the second check.
    """
    refuse_together(fix=wants_fix, explain=code is not None, undo=wanted_undo)
    if names and (code is not None or wanted_undo):
        raise UsageError("--explain and --undo go without a SERVER")
    if code is not None:
        return _explain(code, as_json=as_json)
    if wanted_undo:
        return edits.undo_latest(path, as_json, "doctor", dry_run=dry_run, agreed=agreed)
    if (agreed or dry_run) and not wants_fix:
        raise UsageError("--yes and --dry-run go with --fix")
    if wants_fix:
        repairs.refuse_silence(agreed=agreed, dry_run=dry_run, as_json=as_json)
    registered = find_registered(find_place(path, os.environ).path)
    config = load(path)
    _require_enabled(config, names)
    try:
        with _environment(registered, client):
            diagnosis = run_checks(config, timeout_s, registered, only=names)
    except KeyboardInterrupt:
        output.warn("To start all of them again: foretool doctor; to start some: foretool doctor SERVER...")
        raise click.Abort from None
    if not as_json:
        show_diagnosis(diagnosis, is_whole=not names)
    fixed = repairs.fix(path, diagnosis, agreed=agreed, dry_run=dry_run, as_json=as_json) if wants_fix else None
    left = diagnosis
    if fixed is not None and fixed.backup is not None:
        left = _check_again(path, diagnosis, timeout_s, client, names)
        if not as_json:
            _say_left(left)
    if as_json:
        output.emit(
            {
                "is_well": left.is_well,
                "summary": diagnosis.summary,
                "findings": diagnosis.findings,
                "upstreams": diagnosis.upstreams,
                "failing_jobs": diagnosis.failing_jobs,
                "fixed": fixed,
                "left": left.findings if left is not diagnosis else None,
            }
        )
    elif fixed is None:
        say_mendable(diagnosis)
    return int(not left.is_well)


def _check_again(
    path: Path | None, before: Diagnosis, timeout_s: float, client: str | None, names: Sequence[str]
) -> Diagnosis:
    """Return what an examination finds after the changes. `names`: the servers that were checked; all if empty."""
    config = load(path)
    enabled = [name for name in names if name not in config.disabled]
    if names and not enabled:  # all that was checked is switched off now
        found = tuple(each for each in before.findings if each.server not in names)
        return replace(before, findings=found, upstreams=())
    registered = find_registered(config.path)
    with _environment(registered, client):
        return run_checks(config, timeout_s, registered, may_ask=False, only=enabled)


def _say_left(diagnosis: Diagnosis) -> None:
    """Say what is still wrong after the changes."""
    errors = [each for each in diagnosis.findings if each.severity == "error"]
    if not errors:
        output.say("Checked again: no problem is left.", "green")
        return
    output.say(f"Checked again, {output.plural(len(errors), 'problem')} left:", "red")
    for alike in _group(errors):
        _show_findings(alike, None)


def say_mendable(diagnosis: Diagnosis) -> None:
    """Say that some of what was found can be mended, and which servers only lack the certificates of this network."""
    repairs_known = [each.repair for each in diagnosis.findings if each.repair is not None]
    if distrustful := repairs.find_distrustful(repairs_known):
        files = ", ".join(dict.fromkeys(name for names in distrustful.values() for name in names))
        who = name_some(list(distrustful), _SHOWN)
        output.say(f"{who} did not trust a certificate; to give them {files}: foretool doctor --fix")
    elif repairs_known:
        output.say("Some of this can be mended for you: foretool doctor --fix")


def _require_enabled(config: Config, names: Sequence[str]) -> None:
    """Refuse a name that no enabled server has. Raises `UsageError` for a disabled one, and `UnknownName`."""
    for name in names:
        if name in config.disabled:
            raise UsageError(f"{name} is disabled: foretool enable {shlex.quote(name)}")
        if name not in config.servers and name not in config.broken:
            known = [*config.servers, *config.broken]
            raise UnknownName(f"no server is called {name!r}{guess(name, known) or '; foretool list shows them'}")


class CodeExplanation(Struct, frozen=True):
    code: Code
    title: str
    text: str
    """What happened and what to do, in Markdown."""


def _explain(code: str, *, as_json: bool) -> int:
    known = [each.value for each in Code]
    wanted = code.strip("[]").upper()
    if wanted not in known:
        raise UnknownName(f"no code is called {code!r}{guess(wanted, known)}")
    title, text = explain_code(Code(wanted))
    return output.show(CodeExplanation(Code(wanted), title, text), as_json, _print_explanation)


def _print_explanation(explained: CodeExplanation) -> None:
    output.say(f"{explained.code}: {explained.title}", "bold")
    for paragraph in explained.text.split("\n\n"):
        output.say_paragraph(paragraph)


@contextmanager
def _environment(registered: Sequence[Registered], client: str | None) -> Iterator[None]:
    """Give this process the variables that a client gives foretool. Without one, add those that some entry sets: a
    server that gets its token from there is not broken. Raises `UnknownName`."""
    before = dict(os.environ)
    if client is None:
        given = {name: value for each in registered for name, value in each.environment({}).items()} | before
    else:
        chosen = next((each for each in registered if each.file.client == client), None)
        if chosen is None:
            known = ", ".join(dict.fromkeys(each.file.client for each in registered)) or "none; run foretool init"
            raise UnknownName(f"--client: {client!r} does not start foretool with this config; those that do: {known}.")
        given = chosen.environment(before)
    os.environ.clear()
    os.environ.update(given)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def run_checks(
    config: Config,
    timeout_s: float = TIMEOUT_S,
    registered: Sequence[Registered] | None = None,
    *,
    may_ask: bool = True,
    only: Collection[str] = (),
) -> Diagnosis:
    """Run every check, with a progress bar, and prepare the search by meaning for what was listed. `may_ask`: before an
    encoder is downloaded. `only`: the servers to check; all if it is empty."""
    entries = find_registered(config.path) if registered is None else registered
    with mute_logging(), progress_bar(len(only or config.servers)) as on_progress:
        diagnosis = doctor.diagnose(config, timeout_s, on_progress, registered=entries, only=only)
    found = (finding for pid, proxy in ask_proxies(config).items() for finding in _check_proxy(pid, proxy))
    diagnosis = replace(diagnosis, findings=(*diagnosis.findings, *found))
    refused = ""
    if any(each.tools for each in diagnosis.upstreams):
        refused = embed_listed(config, may_ask=may_ask)
    if refused and not any(each.area == "storage" and each.severity == "error" for each in diagnosis.findings):
        return replace(diagnosis, findings=(*diagnosis.findings, say_refused(refused)))
    return diagnosis


def _check_proxy(pid: int, proxy: OpenProxy) -> Iterator[Finding]:
    """Yield what a running proxy says of itself."""
    if proxy.roots:
        yield note("client", Code.FOLDER_OF_CLIENT, f"proxy {pid}: {proxy.roots}")
    if proxy.refused is not None:
        what = f"proxy {pid} {say_older_config(proxy.refused)}"
        yield problem("config", proxy.refused.code, what, "correct that, or restart its clients")


def embed_listed(config: Config, *, may_ask: bool = True) -> str:
    """Embed the tools that were listed, with a progress bar, so that the first search ranks by meaning. On a terminal
    the user is asked first where this downloads an encoder, if `may_ask`. Returns why the storage took nothing, ""
    if it did."""
    if not _agrees_to_downloads(config, may_ask and sys.stdin.isatty()):
        return ""
    text, count = TextColumn("{task.description}", markup=False), TextColumn("{task.fields[count]}")
    columns = (text, BarColumn(), count, TimeElapsedColumn())
    is_hidden = not sys.stderr.isatty()

    def on_embedded(done: int, total: int) -> None:
        progress.update(task, completed=done, total=total, count=f"{done} of {output.plural(total, 'tool')}")

    with (
        mute_logging(),
        Progress(*columns, console=output.console(error=True), transient=True, disable=is_hidden) as progress,
    ):
        task = progress.add_task("reading the tools, so that they are found by what they do", total=None, count="")
        try:
            problem = probing.prepare_meaning(config, on_embedded)
        except StorageError as error:
            return str(error)
    if problem:
        output.warn(
            f"the search by meaning is not prepared yet ({problem}); a proxy tries it again, and ranks by words"
        )
    return ""


def _agrees_to_downloads(config: Config, may_ask: bool) -> bool:
    """Say which encoders are downloaded now, and whether the user wants that."""
    from foretool.retrieval.encoders import EncoderError, is_download

    try:
        loaded = [each.name for each in embedding.find_weights(config.settings) if is_download(each)]
    except EncoderError:
        return True  # the search says what is missing
    if not loaded:
        return True
    output.warn(f"The encoder {', '.join(loaded)} is not on this machine, and is downloaded from the Hugging Face Hub.")
    if not may_ask or output.agrees("Download it now?", default=True, err=True, left="Nothing was downloaded."):
        return True
    output.warn(
        'A proxy downloads it when it starts. To rank by the encoder of foretool instead, set "encoder" to "auto".'
    )
    return False


@contextmanager
def progress_bar(count: int) -> Iterator[OnProgress]:
    """Show on stderr which upstreams are starting, and which are still being downloaded, if stderr is a terminal. Say
    what is kept if the user interrupts this."""
    is_hidden = not sys.stderr.isatty() or not count
    running: dict[str, Stage] = {}
    ended: list[str] = []
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=output.console(error=True), transient=True, disable=is_hidden) as progress:
        task = progress.add_task("starting servers", total=count)

        def on_progress(name: str, stage: Stage) -> None:
            running[name] = stage
            if stage == "ended":
                del running[name]
                ended.append(name)
            progress.update(task, advance=stage == "ended", description=output.printable_text(_say_running(running)))

        try:
            yield on_progress
        except KeyboardInterrupt:
            progress.stop()
            known = f"what is known of {len(ended)} of {output.plural(count, 'server')} is kept" if ended else ""
            silent = f"no answer yet from {', '.join(running)}" if running else ""
            output.warn(f"Stopped: {'; '.join(filter(None, (known, silent))) or 'no server was started'}.")
            raise


def _say_running(running: Mapping[str, Stage]) -> str:
    """Say which servers the bar waits for, those first that may take minutes."""
    said = []
    for stage, what in (
        ("loading", "downloading {}"),
        ("again", "trying {} once more"),
        ("started", "waiting for {}"),
        ("silent", "no answer from {}; Ctrl-C stops"),
    ):
        if names := [name for name, now in running.items() if now == stage]:
            said.append(what.format(", ".join(names[:_SHOWN])))
    return "; ".join(said) or "done"


def show_diagnosis(diagnosis: Diagnosis, path: Path | None = None, *, is_whole: bool = True) -> None:
    """Print what an examination has found: a summary, what is wrong, and then what works. With `path`, the config:
    on one screen, without what servers have written and what is as it should be, and with lines of that file.
    `is_whole`: whether all servers were checked, so that what a client loads is known."""
    briefly = path is not None
    output.say_paragraph(_say_summary(diagnosis.summary, briefly=briefly, is_whole=is_whole), style="bold")
    explain = " (to have one explained: foretool doctor --explain CODE)" if briefly else ""
    for severity, noun in _GROUPS:
        found = [each for each in diagnosis.findings if each.severity == severity]
        if found:
            output.say(f"\n{output.plural(len(found), noun)}{explain}:", _STYLES[severity])
            explain = ""
            for alike in _group(found):
                _show_findings(alike, path if briefly else None)
    if briefly:
        return
    _show_well([each for each in diagnosis.upstreams if each.is_well])
    for each in diagnosis.findings:
        if each.severity == "ok":
            output.say_paragraph(each.what, "  ", "    ")
    errors, warnings = (sum(each.severity == kind for each in diagnosis.findings) for kind in ("error", "warning"))
    counted = f"{output.plural(errors, 'problem') if errors else 'No problems'}, {output.plural(warnings, 'warning')}."
    codes = " To have one explained: foretool doctor --explain CODE" if errors + warnings else ""
    output.say(f"\n{counted}{codes}", "red" if errors else "green")


def _say_summary(summary: TokenSummary, *, briefly: bool, is_whole: bool) -> str:
    servers = output.plural(summary.servers, "server")
    if not summary.well and summary.servers == 1:
        servers = "The server does not work"
    elif summary.well < summary.servers:
        servers = f"{summary.well or 'None'} of {servers} {'works' if summary.well < 2 else 'work'}"
    if not summary.tools and not is_whole:
        return f"{servers}."
    if not summary.tools:
        return f"{servers}: there are no tools that a client could see."
    tools, tokens = output.plural(summary.tools, "tool"), f"{summary.tokens:,} tokens"
    if not is_whole:
        return f"{servers}, {tools}, {tokens}."
    if summary.listed_tokens is None:
        return f"{servers}, {tools}, {tokens}. The storage cannot be used, so what a client loads is not known."
    if summary.lists_all:
        return f"{servers}, {tools}, {tokens}: so few that all are listed, which a model does best with."
    if briefly:
        return (
            f"{servers}, {tools}: a client's first list takes {summary.listed_tokens:,} tokens,"
            f" one of all tools would take {summary.tokens:,}."
        )
    return (
        f"{servers}, {tools}, {tokens}. A client's first list takes {summary.listed_tokens:,}"
        f" ({output.plural(summary.listed_tools or 0, 'tool')}), and its model finds the rest."
    )


def _group(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Put together what has the same cure."""
    return output.put_together(findings, lambda each: (each.code or "", _cure_of([each], "SERVER")))


def _cure_of(alike: Sequence[Finding], servers: str) -> str:
    """Return what to do about findings with the same cure, with these servers in its command."""
    return alike[0].do.replace(f"foretool doctor {shlex.quote(alike[0].server)} --", f"foretool doctor {servers} --")


def _show_findings(alike: Sequence[Finding], path: Path | None) -> None:
    """Print findings with the same cure, and that once below them."""
    for finding in alike:
        code = f" [{finding.code}]" if finding.code else ""
        what = finding.what
        if path is not None:  # the server is named already
            what = re.sub(rf"{re.escape(str(path))}:(\d+)(?::\d+)?: (?:mcpServers\.\S+: )?", r"line \1: ", what)
        output.say_paragraph(f"{what.replace(f'{Path.home()}/', '~/')}{code}", "  ", "    ")
        for line in finding.lines if path is None else ():
            output.say_paragraph(line, "    | ", "    | ", "dim")
    if do := _cure_of(alike, " ".join(each.server for each in alike)):
        output.say_paragraph(do, "    -> ", "       ")


def _show_well(upstreams: Sequence[UpstreamCheck]) -> None:
    if not upstreams:
        return
    output.say(f"\n{output.plural(len(upstreams), 'server')} that work{'s' if len(upstreams) == 1 else ''}:", "green")
    rows = [(each.upstream, each.tools, f"{each.tokens:,}", f"{each.listed_ms / 1000:.1f}", each.server)
            for each in upstreams]  # fmt: skip
    output.table(("server", "tools#", "tokens#", "seconds#", "says it is…"), rows)
