"""`foretool hint`, a prompt hook: stores the prompt and names the tools that it may need.

A client runs it at each prompt with JSON on stdin, waits for it, and shows the model what it prints. So it must be
quick and never get in the way: a deadline ends it, every error ends it silently, and the exit status is always 0 (2
would block the prompt). It imports neither the event loop nor click. What has no answer by the deadline is still
stored: a child that the client does not wait for does that. "Yes, go on" names no task: it gets no answer and is not
stored, so that the task before it goes on.

After a command of the client's shell it runs too, where the user wants that (`--shell`): then it tells the proxy which
programs ran with which subcommands, and prints nothing.

It asks the running proxy over the local socket, which ranks with everything that it knows and records the prompt. Only
where none answers in time, it reads the config and the store itself and ranks without what was learned: VS Code starts
a server that it knows at the first call of a tool, so behind the first prompt. It opens the encoder, which takes half a
second of a processor. Of 93 steps of everyday tasks over 128 tools the first tool is then right for 63, and by words
alone for 30; of 30 prompts about code 2 get a hint, and by words alone 29. Words alone rank where no encoder is
installed: those tools of a large catalog that share most words with the prompt, by the first bytes of their
definitions.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
import time
from collections import namedtuple

from foretool.server.hints import AHEAD, MOST_TEXT
from foretool.server.hints.talk import is_talk

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing and pathlib take half as long to import as everything else that the way to a proxy needs
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any, Final

    from foretool.retrieval.corpus import Corpus
    from foretool.retrieval.encoders import Weights
    from foretool.retrieval.rankers.dense import DenseEnsemble
    from foretool.server.config.loader import Config
    from foretool.server.hints.texts import Hint
    from foretool.server.trust.policy import Reach
    from foretool.storage.records import Tool, ToolId
    from foretool.storage.store import Store

Head = tuple[str, "ToolId", str, bytes]
"""Upstream, exposed name, own name, and the first bytes of the definition of a tool."""

_DEADLINE_MS: Final = 1300.0
"""Longest life of the process, unless the variable FORETOOL_HINT_MS sets another limit. Only a busy machine comes near
it: the start of Python alone may take half a second there. Clients wait for two seconds."""
_STORING_S: Final = 10.0
"""How long a prompt that got no answer may take until it is stored."""
_SHELL_DEADLINE_MS: Final = 1000.0
"""The same behind a command of the shell: no prompt waits, and most clients go on meanwhile."""
_MOST_DIGITS: Final = 9
"""Digits of that limit; a timer takes no number that is much longer."""
_ASK_PART: Final = 0.9
"""A proxy that is there may use this part of what is left: it may still be opening its encoder, and this process would
not be faster."""
STATUS: Final = "/proc/self/stat"
_MOST_STDIN: Final = 4 * 1024 * 1024
_MOST_SEARCHED: Final = 2_000
"""Characters of a prompt that are searched with."""
_MOST_RANKED: Final = 100
"""How many tools are read and ranked, those with most words of the prompt; ranking 4,400 finds 3 in 100 more."""
_MOST_READ: Final = 400
"""The same with an encoder, for which a tool need share no word with the prompt."""
_HEAD_BYTES: Final = 600
"""Bytes of a definition that are scanned for words; they mostly hold its name and description."""
_IN_NAME: Final = 1.5
"""Weight of a word that is in the name too."""
_MOST_TERMS: Final = 20
_MOST_ALIKE: Final = 12
"""How many words are looked for that mean nearly the same as those of the prompt; the ranker takes six of them."""


_PLAIN: Final = ("claude-code", "opencode")
"""Clients whose hook takes the text as it is; that of opencode is a module of ours."""
_EVENTS: Final = {
    "codex": "UserPromptSubmit", "gemini": "BeforeAgent", "qwen": "UserPromptSubmit", "vscode": "UserPromptSubmit",
    "copilot": "", "cursor": "",
}  # fmt: skip
"""By client: the event that its hook's answer names; "" where the answer has no such member."""
_ONE_FOLDER: Final = {"vscode": True, "copilot": False}
"""Clients that read their hooks from one folder, so that each runs the hook of the other as well, and whether what they
send names the event. A hook answers only its own client."""
_CALLED: Final = {"vscode": "visual studio code"}
"""What clients call themselves over MCP, where that has another name in it."""


class HintOptions(
    namedtuple("HintOptions", ("config", "profile", "client", "is_shell"), defaults=(None, "", "claude-code", False))
):
    """The options of `foretool hint` as a hook runs it; `config` is a path or None. `is_shell`: a command of the shell
    ran, and no prompt came."""

    __slots__ = ()

    @property
    def called(self) -> str:
        """What the client calls itself over MCP, or a part of that, in lower case; `records.is_called` reads it."""
        return _CALLED.get(self.client, str(self.client))


class HookPrompt(namedtuple("HookPrompt", ("text", "session", "folder", "at"))):
    """A prompt as the client's hook told it. `session`: the client's own id of its conversation."""

    __slots__ = ()


def plain_hint(arguments: Sequence[str]) -> HintOptions | None:
    """Read `foretool hint` as a hook calls it. Returns None for any other command line, which is left to click."""
    found: dict[str, str] = {}
    rest = [each for each in arguments[1:] if each != "--shell"]
    is_shell = len(rest) < len(arguments) - 1
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name not in ("--config", "--profile", "--client") or not (equals or rest):
            return None
        found[name] = value if equals else rest.pop(0)
    config = found.get("--config")
    client = found.get("--client", "claude-code")
    if client not in _PLAIN and client not in _EVENTS:
        return None
    return HintOptions(config or None, found.get("--profile", ""), client, is_shell)


def main(options: HintOptions) -> int:
    """Answer the prompt on stdin. Returns the exit status, which is always 0."""
    gc.disable()  # hardly anything that is made here is dropped before the process ends
    event = bytearray()
    asked = None
    with contextlib.suppress(Exception):  # no error is worth holding up a prompt
        try:
            # Python handles the signal between two bytecodes, so a long call into C delays it a little.
            signal.signal(signal.SIGALRM, _end if options.is_shell else _let_client_go)
            # Only here, because it may be over at once where this process was slow to start.
            signal.setitimer(signal.ITIMER_REAL, left_s(_SHELL_DEADLINE_MS if options.is_shell else _DEADLINE_MS))
            _read_stdin(event)
            if options.is_shell:
                hint = report_commands(event, options)
            else:
                asked = read_prompt(event, options.client)
                hint = _answer(asked, options) if asked is not None else ""
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            if hint:
                _print(form_output(hint, options.client) + "\n")
        except TooLate:
            _read_stdin(event)
            late = asked or read_prompt(event, options.client)  # the same time, where the proxy may have stored it too
            if late is not None:
                keep_prompt(late, options)
    return 0


def _read_stdin(event: bytearray) -> None:
    """Read what the client tells, behind what was read of it before."""
    while len(event) < _MOST_STDIN and (part := os.read(0, _MOST_STDIN)):
        event += part


class TooLate(BaseException):
    """The deadline is over, so the client no longer waits for this process. Not an `Exception`, so that no handler on
    the way to `main` takes it for an ordinary error."""


def _end(number: int, frame: object) -> None:
    os._exit(0)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Let the deadline wait until something short is done."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _let_client_go(number: int, frame: object) -> None:
    """End what the client waits for. Raises `TooLate` in a child, which holds nothing of the client's but its words."""
    try:
        if os.fork():
            os._exit(0)
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
    except OSError:
        os._exit(0)
    signal.signal(signal.SIGALRM, _end)
    signal.setitimer(signal.ITIMER_REAL, _STORING_S)
    raise TooLate


def _print(text: str) -> None:
    """Print a text as UTF-8, whatever the locale says: clients expect that. Raises `OSError` if nobody reads it."""
    left = text.encode("utf-8", "replace")
    while left:  # by the file itself: what a buffer still holds would be written, and fail, when the process ends
        left = left[os.write(1, left) :]


def form_output(hint: str, client: str) -> str:
    """Return what the client's hook has to print."""
    if client in _PLAIN:
        return hint
    if client == "cursor":
        return json.dumps({"continue": True, "additional_context": hint})
    event = _EVENTS[client]
    said = {"additionalContext": hint}
    return json.dumps({"hookSpecificOutput": {"hookEventName": event, **said}} if event else said)


def left_s(deadline_ms: float = _DEADLINE_MS) -> float:
    """Return what is left of the deadline, which began when the process did."""
    written = os.environ.get("FORETOOL_HINT_MS", "")
    total = float(written) if written.isdecimal() and len(written) <= _MOST_DIGITS else deadline_ms
    return max(total / 1000 - age_s(), 0.001)


def age_s() -> float:
    """Return how long this process has run. Where the system does not say, its processor time stands in for it."""
    used = time.process_time()
    try:
        # proc(5), field 22: ticks from the start of the machine to ours; the name in brackets may have spaces.
        with open(STATUS, "rb") as file:  # noqa: PTH123 -- quicker to import
            fields = file.read().rpartition(b")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, ValueError, IndexError, AttributeError):
        return used
    # A container with a clock of its own gives nonsense.
    return age if used <= age < 5 else used


def answer_prompt(event_json: bytes | bytearray, options: HintOptions, patience_s: float | None = None) -> str:
    """Store the prompt and return the text that names its tools, "" if none is likely. `patience_s`: how long the
    running proxy is waited for; a part of what is left of the deadline if not given. May raise any error."""
    asked = read_prompt(event_json, options.client)
    return _answer(asked, options, patience_s) if asked is not None else ""


def read_prompt(event_json: bytes | bytearray, client: str) -> HookPrompt | None:
    """Read what the client tells its hook; None if that has no prompt, or one that names no task, or another client
    tells it. May raise any error."""
    event = json.loads(event_json)
    if not _is_told_by(client, event):
        return None
    text = event.get("prompt")
    if not isinstance(text, str) or is_talk(text):
        return None
    session = event.get("session_id") or event.get("sessionId") or event.get("conversation_id")
    return HookPrompt(text, str(session or ""), _folder_of(event), time.time())


def _folder_of(event: dict[str, Any]) -> str:
    """Return the folder in which the client works: Cursor lists all that are open, the first of them before the
    others."""
    roots = event.get("workspace_roots")
    return str(event.get("cwd") or (roots[0] if isinstance(roots, list) and roots else "") or "")


def _is_told_by(client: str, event: dict[str, Any]) -> bool:
    if "cursor_version" in event:  # Cursor may run the hooks of Claude Code too
        return client == "cursor"
    if client == "claude-code" and "timestamp" in event and "permission_mode" not in event:
        return False  # VS Code, which runs them with chat.useClaudeHooks
    return client not in _ONE_FOLDER or ("hook_event_name" in event) == _ONE_FOLDER[client]


def _answer(asked: HookPrompt, options: HintOptions, patience_s: float | None = None) -> str:
    said = ask_proxy(asked, options, left_s() * _ASK_PART if patience_s is None else patience_s)
    return answer_alone(asked, options) if said is None else said


def report_commands(event_json: bytes | bytearray, options: HintOptions) -> str:
    """Tell the running proxy which commands of the shell ran, in shape only. Returns "": the model is told nothing. May
    raise any error."""
    from foretool.server.hints.shell_shape import read_event

    event = json.loads(event_json)
    shapes = read_event(event)
    if shapes and _is_told_by(options.client, event):
        folder = _folder_of(event)
        _ask(
            "shell",
            {"commands": shapes, "cwd": folder, "client": options.called},
            options,
            folder,
            left_s(_SHELL_DEADLINE_MS),
        )
    return ""


def ask_proxy(asked: HookPrompt, options: HintOptions, patience_s: float) -> str | None:
    """Return what the running proxy says, "" for nothing; None if none answers in time."""
    question = {
        "prompt": asked.text[: MOST_TEXT + AHEAD].encode("utf-8", "replace").decode(), "at": asked.at,
        "session": asked.session, "cwd": asked.folder, "client": options.called, "patience_s": patience_s,
    }  # fmt: skip
    said = (_ask("hint", question, options, asked.folder, patience_s) or {}).get("text")
    return said if isinstance(said, str) else None


def _ask(
    service: str, question: dict[str, Any], options: HintOptions, working_folder: str, patience_s: float
) -> dict[str, Any] | None:
    """Return the answer of the running proxy; None if none answers in time."""
    from foretool.server.local.caller import NoAnswer, ask
    from foretool.server.local.places import ProxyIdentity, find_folder

    folder = find_folder(os.environ)
    if folder is None or not os.path.isdir(folder):  # noqa: PTH112 -- quicker
        return None
    config, here = os.path.realpath(_config_path(options.config)), os.path.realpath(working_folder or ".")
    try:
        return ask(folder, ProxyIdentity(config, options.profile, here), service, question, patience_s)
    except NoAnswer:
        return None


def _config_path(given: str | os.PathLike[str] | None) -> str | os.PathLike[str]:
    if given is not None and os.path.isabs(given):  # noqa: PTH117 -- quicker to import
        return given
    from pathlib import Path

    from foretool.server.config.files import find_place

    return find_place(Path(given) if given is not None else None, os.environ).path


def _import_msgspec() -> None:
    """Import msgspec without typing_extensions, of which it takes only what `typing` has too: half the time."""
    name = "typing_extensions"
    is_new = name not in sys.modules
    if is_new:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        import msgspec  # noqa: F401
    finally:
        if is_new:
            del sys.modules[name]


def answer_alone(asked: HookPrompt, options: HintOptions) -> str:
    """Store the prompt and name its tools without a proxy."""
    config = _load(options)
    from foretool.storage.engine import StorageError
    from foretool.storage.opening import open_readable_store
    from foretool.storage.records import Exposure

    with contextlib.ExitStack() as opened:
        with _undisturbed():
            store = opened.enter_context(open_readable_store(config.storage, busy_ms=50))
            # The store may be busy or full, and the hint is still useful.
            with contextlib.suppress(StorageError):
                _keep(asked, options, config, store)
            if signal.getsignal(signal.SIGALRM) is _let_client_go:
                # A child would go on with our connection, and SQLite allows that to nobody.
                signal.signal(signal.SIGALRM, _end)
        hint = _name_tools(config, store, asked.text[:_MOST_SEARCHED], options.profile)
        if hint.tools:
            shown = Exposure(asked.session, asked.at, "frozen", 0, hint.tools, hint.tokens, "prompt")
            with contextlib.suppress(StorageError):
                store.sessions.add_exposure(shown)
        return hint.text


def keep_prompt(asked: HookPrompt, options: HintOptions) -> None:
    """Store a prompt for which a hint would come too late. May raise any error."""
    config = _load(options)
    from foretool.storage.opening import open_store

    with open_store(config.storage) as store:
        _keep(asked, options, config, store)


def _load(options: HintOptions) -> Config:
    _import_msgspec()
    from pathlib import Path

    from foretool.server.config.loader import load

    config = load(Path(options.config) if options.config is not None else None)
    config.require_profile(options.profile)
    return config


def _keep(asked: HookPrompt, options: HintOptions, config: Config, store: Store) -> None:
    """Store the prompt, if the config wants that. Raises `StorageError`."""
    if config.settings.record == "off":
        return
    from foretool.storage.records import Prompt
    from foretool.storage.redaction import clean_beginning

    store.hide(lambda: config.secrets)
    kept = clean_beginning(asked.text, config.secrets.redact, MOST_TEXT, AHEAD)
    clean = kept.encode("utf-8", "replace").decode()
    store.tasks.add_prompt(Prompt(asked.at, clean, asked.session, asked.folder, options.called))


def _name_tools(config: Config, store: Store, text: str, profile: str) -> Hint:
    """Return a text that names the likely tools, an empty one if none is likely."""
    from foretool.retrieval.confidence import level
    from foretool.retrieval.pipeline import Pipeline
    from foretool.retrieval.ranking import Query
    from foretool.server.catalog.known_lists import find_known
    from foretool.server.catalog.server_words import read_server_names
    from foretool.server.hints.texts import MOST, Hint, Mark, is_doubtful, without_unasked, write_prompt_hint
    from foretool.server.trust.policy import Reach
    from foretool.storage.records import ToolId, working_set_key

    weights = _find_encoder(config)
    reached = find_known(store, config.servers.values())
    given = store.catalog.exposed_names() if config.profiles[profile].deny else {}
    reach = Reach(
        config.profiles[profile], config.servers, config.settings, given_to=lambda name: given.get(ToolId(name))
    )
    corpus, tools = _read_tools(config, store, reached, reach, text, _MOST_READ if weights else _MOST_RANKED)
    working_set = store.serving.working_set(working_set_key(profile, "frozen"))
    listed, named = (working_set.tools, working_set.named) if working_set is not None else ((), ())
    named_by = [config.servers[name] for name in dict.fromkeys(tool.upstream for tool in tools)]
    corpus.server_names = read_server_names(named_by, lambda name: config.servers[name].prefix)
    dense = _open_encoder(weights, corpus, store) if weights is not None else None
    ranking = Pipeline(corpus, dense).rank(Query(lines=(text,)), limit=MOST)
    if is_doubtful(ranking, level(ranking)):
        return Hint()
    by_id = {tool.id: tool for tool in tools}
    found = (by_id[each.tool] for each in ranking.ranked)
    return write_prompt_hint(
        without_unasked(found, text),
        lambda tool: Mark(tool.id in listed, reach.verdict(tool).bridge == "call_tool_write", tool.id in named),
    )


def _find_encoder(config: Config) -> Weights | None:
    """Return the encoder of the config; None if none is installed, or only one that takes too long for a prompt."""
    from foretool.retrieval.encoders import EncoderError, resolve_weights

    with contextlib.suppress(EncoderError):
        found = resolve_weights(config.settings.encoder) if not config.settings.encoder_url else ()
        if len(found) == 1 and not found[0].is_slow:
            return found[0]
    return None


def _open_encoder(weights: Weights, corpus: Corpus, store: Store) -> DenseEnsemble | None:
    """Open an encoder with the vectors that the store keeps of these tools; None if it cannot be opened."""
    from foretool.retrieval.encoders import EncoderError, open_encoder
    from foretool.retrieval.rankers.dense import DenseEnsemble

    try:
        dense = DenseEnsemble([open_encoder(weights)])
    except EncoderError:
        return None
    dense.heads[0].add(store.vectors.load(weights.key, {digest for digest in corpus.digests if digest}))
    dense.align(corpus.digests, corpus.version, corpus.servers)
    return dense


def _read_tools(
    config: Config, store: Store, reached: Mapping[str, str], reach: Reach, text: str, most: int
) -> tuple[Corpus, list[Tool]]:
    """Return the `most` tools that share most words with a text, by the first bytes of all definitions; all tools where
    they are no more."""
    from foretool.retrieval.corpus import Corpus
    from foretool.retrieval.known_tools import shipped_wordings

    heads = [
        head
        for head in store.catalog.tool_heads(list(reached.items()), _HEAD_BYTES)
        if config.servers[head[0]].offers(head[2])
    ]
    wanted = ((own, name, reached[name]) for name, _, own, _ in _preselect(heads, text, most))
    tools = _as_served(config, reach, store.catalog.tools_named(wanted))
    corpus = Corpus(shipped=shipped_wordings if config.settings.shipped_wordings else None)
    corpus.take_wordings({each.digest: each.texts for each in store.wordings.all() if each.texts})
    for name in dict.fromkeys(tool.upstream for tool in tools):
        own_tools = [tool for tool in tools if tool.upstream == name]
        corpus.replace(name, own_tools, config.servers[name].entry.description)
    corpus.lexical.chosen_from = len(heads)
    return corpus, tools


def _as_served(config: Config, reach: Reach, tools: list[Tool]) -> list[Tool]:
    """Return tools in the user's words, without those that the profile may not find."""
    if any(server.entry.tools for server in config.servers.values()):
        from foretool.server.catalog.namespaces import Namespaces
        from foretool.server.catalog.overrides import Overrides

        entries = list(config.servers.values())
        tools = list(map(Overrides(entries, Namespaces(entries, config.prefixes)).apply, tools))
    return list(filter(reach.finds, tools))


def _preselect(heads: Sequence[Head], text: str, most: int) -> list[Head]:
    """Return the `most` tools whose names and first bytes contain most words of the text, or words that mean nearly the
    same, where rare words count more.

    Reading a tool takes a hundred times as long as looking for a few words in its first bytes.
    """
    from heapq import nlargest
    from math import log

    from foretool.retrieval.near_words import near_terms
    from foretool.retrieval.rankers.bm25 import SAID, pick_rare, weigh_terms

    if len(heads) <= most:
        return list(heads)
    said = weigh_terms(text)
    # Long words say most, and looking for 20 of them in 5,000 tools takes milliseconds.
    wanted = dict.fromkeys(nlargest(_MOST_TERMS, (term for term in said if said[term] >= SAID), key=len), 1.0)
    alike = {term: weight for term, (_, weight) in near_terms(said).items()}
    near = {term: alike[term] for term in nlargest(_MOST_ALIKE, alike, key=alike.__getitem__)}
    names, find = [tool.lower() for _, tool, _, _ in heads], _finder([head for *_, head in heads])
    having = {term: find(term) for term in wanted.keys() | near.keys()}
    # The ranker chooses by the same rule which near words take part.
    rare = pick_rare(near, {term: len(having[term]) for term in near}, len(heads))
    scores = [0.0] * len(heads)
    for term, share in (wanted | {term: near[term] for term in rare}).items():
        weight = share * log(1 + len(heads) / (1 + len(having[term])))
        for place in having[term]:
            scores[place] += weight * (_IN_NAME if term in names[place] else 1.0)
    best = nlargest(most, range(len(heads)), key=lambda place: (scores[place], -place))
    return [heads[place] for place in sorted(best) if scores[place] > 0.0]


def _finder(texts: Sequence[bytes]) -> Callable[[str], list[int]]:
    """Return what tells which of the texts contain a word; it looks through all of them at once."""
    from bisect import bisect_right
    from itertools import accumulate

    whole = b"\n".join(texts).lower()
    starts = [0, *accumulate(len(text) + 1 for text in texts)]

    def find(word: str) -> list[int]:
        encoded, found = word.encode(), list[int]()
        at = whole.find(encoded)
        while at >= 0:
            found.append(bisect_right(starts, at) - 1)
            at = whole.find(encoded, starts[found[-1] + 1])
        return found

    return find
