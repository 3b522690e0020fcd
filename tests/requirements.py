"""What is promised, and where each promise comes from; tests name the promises they hold us to.

`test_requirements.py` checks both directions: every promise has a test, every promise that a test names stands here.
A `design` source is a part of `docs/architecture.md` or of the README; a `spec` source is a page of the protocol's
specification, by revision and path under https://modelcontextprotocol.io/specification/.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest


class Promise(NamedTuple):
    """One thing that holds."""

    source: str
    behaviour: str


MODERN = "spec 2026-07-28"
LEGACY = "spec 2025-11-25"
DTDR = "DTDR (dynamic tool dependency retrieval)"
ITR = "ITR (dynamic system instructions and tool exposure), section 4"

MANIFEST: Final[dict[str, Promise]] = {
    # Traces and metrics
    "telemetry:trace": Promise("docs/observability.md", "a call is one trace from the client to the upstream"),
    "telemetry:off": Promise("docs/observability.md", "off, nothing is imported, and a trace context passes unchanged"),
    "telemetry:content": Promise("docs/observability.md", "arguments and results leave only with `full`"),
    "telemetry:bounded": Promise("docs/observability.md", "no client and no server can add series without end"),
    "telemetry:collector": Promise("docs/observability.md", "a collector that is away or silent holds nothing up"),
    "telemetry:metrics": Promise("docs/observability.md", "/metrics is read by Prometheus, under the rules of /mcp"),
    # Long results
    "result:cut": Promise(
        "docs/configuration.md", "a text over `result_tokens` is cut, and its parts together are the whole text"
    ),
    "result:per-tool": Promise("docs/configuration.md", "a server and a pattern of its tools have their own budget"),
    "result:structured": Promise(
        "docs/configuration.md", "structured content stays valid: it is cut where any string may stand, else whole"
    ),
    "trust:results:own": Promise("SECURITY.md", "no other client can read what was cut off a result"),
    "trust:results:bounded": Promise(
        "SECURITY.md", "what is kept of long results is bounded, and who holds most makes room first"
    ),
    # Trust
    "trust:apps:alone": Promise(
        "SECURITY.md", "what a server offers to its page alone is neither found nor run by a model"
    ),
    "trust:apps:calls": Promise(
        "SECURITY.md", "a page can call no tool of another server and none of ours; with several servers, none at all"
    ),
    "trust:apps:pages": Promise("SECURITY.md", "no tool is shown with the page of another server"),
    "trust:text:quoted": Promise(
        "SECURITY.md", "no line of a server's text can pose as another server's, as the user's or as ours"
    ),
    "trust:ranking:copies": Promise("SECURITY.md", "a near copy never collapses the tool that was there first"),
    "trust:ranking:named": Promise(
        "SECURITY.md", "what names a server in a task stands in the config alone, and is no secret"
    ),
    "trust:ranking:stuffed": Promise(
        "SECURITY.md", "a tool stuffed with the words of hundreds of tools is in no answer to an unrelated task"
    ),
    "trust:pin:description": Promise("SECURITY.md", "a changed description reaches no list, search, index or store"),
    "trust:pin:schema": Promise("SECURITY.md", "a changed tool whose calls would not fit is refused and recorded"),
    "trust:pin:annotations": Promise("SECURITY.md", "a lowered risk counts once it is approved"),
    "trust:pin:new-tool": Promise("SECURITY.md", "a new tool of a known server is neither shown nor called"),
    "trust:pin:removed": Promise("SECURITY.md", "a tool that comes back or is renamed is compared like any other"),
    "trust:pin:flapping": Promise("SECURITY.md", "the same change is held each time and said once"),
    "trust:pin:bounded": Promise("SECURITY.md", "a server that changes all the time fills nothing"),
    "trust:pin:spelling": Promise("SECURITY.md", "another spelling of the same value is no change"),
    "trust:pin:instructions": Promise("SECURITY.md", "changed instructions are not quoted"),
    "trust:pin:prompts": Promise("SECURITY.md", "changed prompts are not listed, got or quoted"),
    "trust:pin:resources": Promise(
        "SECURITY.md",
        "changed words of resources and templates are not listed; a new template is not there, and a new resource has"
        " its address and name alone",
    ),
    "trust:pin:launch": Promise(
        "SECURITY.md",
        "an entry that the user edits approves what its server then lists first, and no other version of it, nothing"
        " that was held, and nothing where a repository may have changed the file",
    ),
    "trust:pin:two-proxies": Promise("SECURITY.md", "all proxies over one store agree on what was approved"),
    "trust:pin:store": Promise("SECURITY.md", "a store that cannot be read or written approves nothing"),
    "trust:pin:said": Promise("SECURITY.md", "what is held is said to clients, in status, doctor and the log, once"),
    "trust:pin:http": Promise("SECURITY.md", "changes of servers behind HTTP are held as well"),
    "trust:auto": Promise("SECURITY.md", "with `trust: auto` a server is served as it lists"),
    "trust:approve:exact": Promise("SECURITY.md", "what is approved is what was shown"),
    "trust:approve:live": Promise("SECURITY.md", "a running proxy takes a decision up at once"),
    "trust:approve:new": Promise("SECURITY.md", "with `trust: review` nothing is served before it was reviewed"),
    "trust:findings:shown": Promise(
        "SECURITY.md",
        "what looks wrong in the text of a server is in `status`, `doctor` and `tools`, and blocks nothing",
    ),
    "trust:links:icons": Promise(
        "SECURITY.md",
        "an icon that leaves us is a picture in itself or stands at a public https address, in every list",
    ),
    "trust:text:invisible": Promise(
        "SECURITY.md",
        "no invisible character of a server's definitions, lists, questions or log lines reaches a client",
    ),
    # Names and prompts that a server may not take from others
    "trust:names:suggested": Promise("SECURITY.md", "a name that is nearly right is suggested and never run"),
    "trust:names:tombstone": Promise(
        "SECURITY.md", "the name of an excluded tool, or of a server that is not in use, goes to no other server"
    ),
    "trust:names:reserved": Promise("SECURITY.md", "no server has a name under the prefix of another"),
    "trust:names:server": Promise("SECURITY.md", "a call that names a server in any spelling runs on no other"),
    "trust:names:kept": Promise("SECURITY.md", "a name given for good means the tool it was given to, or nothing"),
    "trust:names:own-name": Promise("SECURITY.md", "an own name that several servers have or had is only suggested"),
    "trust:names:unlisted": Promise(
        "SECURITY.md", "a server without a prefix is not asked for what may be the tool of another"
    ),
    "trust:names:alike": Promise("SECURITY.md", "servers whose prefixes differ in case and punctuation are reported"),
    "trust:names:prompts": Promise("SECURITY.md", "prompts follow the rules of tools' names"),
    # Resources that belong to one server
    "trust:resources:owner": Promise(
        "SECURITY.md",
        "a URI goes to the server that it belongs to, and a template for everything or for a whole scheme of many"
        " servers owns nothing",
    ),
    "trust:resources:broadcast": Promise("SECURITY.md", "a URI that fits no server is shown to none"),
    "trust:resources:first": Promise("SECURITY.md", "no later listing takes a URI from the server that listed it"),
    "trust:resources:profile": Promise("SECURITY.md", "what one profile lists changes nothing for another"),
    "trust:resources:updates": Promise("SECURITY.md", "a server announces changes of its own resources alone"),
    "trust:resources:links": Promise(
        "SECURITY.md", "a link in a result leads to the server that gave it, unless the URI is another's"
    ),
    "trust:resources:linear": Promise("SECURITY.md", "matching URI templates takes linear time, within bounds"),
    # Questions of servers to users
    "trust:questions:named": Promise(
        "SECURITY.md", "every question of a server names it in the text that the user reads, and an address by its host"
    ),
    "trust:questions:credentials": Promise("SECURITY.md", "a form that asks for a credential does not reach the user"),
    "trust:questions:whose": Promise(
        "SECURITY.md", "no server asks a client whose profile leaves it out, or ends the elicitation of another"
    ),
    "trust:questions:logs": Promise("SECURITY.md", "a log message names its server in its logger"),
    "trust:questions:announcements": Promise(
        "SECURITY.md", "the stream of a request carries its own progress and log messages alone"
    ),
    "trust:policy:deny": Promise(
        "SECURITY.md", "a denied tool is not listed, not found, and runs under no name and in no way"
    ),
    "trust:policy:rules": Promise("SECURITY.md", "deny beats allow, and a profile cannot loosen a rule of a server"),
    "trust:policy:risk": Promise(
        "SECURITY.md",
        "the user's word on a tool's risk beats the server's; an unmarked tool counts as destructive where a rule asks",
    ),
    "trust:policy:cache": Promise("SECURITY.md", "a definition or a config that changes is judged again at once"),
    "trust:policy:servers": Promise(
        "SECURITY.md", "resources, prompts, completions and subscriptions of a server outside the profile do not exist"
    ),
    "trust:policy:one-point": Promise("SECURITY.md", "one file decides what a profile reaches"),
    "trust:policy:on-record": Promise(
        "SECURITY.md", "every refusal is a call on record, and a denied tool that was needed is a miss with the way out"
    ),
    "trust:policy:no-use": Promise("SECURITY.md", "a refused call counts as no use, and nothing is learned from it"),
    # The list of tools
    "list:frozen:byte-identical": Promise(
        "design: exposure", "a frozen list is the same bytes for all, after a restart too"
    ),
    "list:frozen:unmoved-by-requests": Promise(f"{MODERN}: server/tools", "no request moves a frozen list"),
    "list:frozen:sorted": Promise(f"{MODERN}: server/tools", "the order of a list is deterministic"),
    "list:frozen:epoch": Promise("design: exposure", "a new epoch brings in usage and is announced once"),
    "list:epoch-announced": Promise(
        f"{MODERN}: server/tools", "an epoch is announced to every listener of either era, on stdio and over HTTP"
    ),
    "list:growing:allowed": Promise(
        f"{MODERN}: server/tools", "a list grows for clients known to list again, in the legacy era, or where it is set"
    ),
    "list:frozen:first-week": Promise(
        "docs/configuration.md", "in the first week a session that shares its list with no other lists what was used"
    ),
    "list:failing": Promise("README: what your client sees", "a tool that fails at every call does not enter a list"),
    "capabilities:answered": Promise("docs/protocol.md", "every capability that we declare is answered, in both eras"),
    "capabilities:experimental": Promise(
        "docs/protocol.md", "experimental capabilities of the client reach servers, those of servers reach no client"
    ),
    "list:frozen:catalog-change": Promise(
        "design: exposure", "a changed catalogue moves the list and is announced to all"
    ),
    "list:modern:caching": Promise(f"{MODERN}: server/utilities/caching", "lists carry ttlMs and cacheScope private"),
    "list:modern:ttl": Promise(
        f"{MODERN}: server/utilities/caching", "a list that may change soon is not cached for long"
    ),
    "era:url-elicitation": Promise(f"{MODERN}: basic/messages", "no client gets a code that its era does not have"),
    "list:one-page": Promise(
        f"{MODERN}: server/utilities/pagination", "the list is one page; other cursors are errors"
    ),
    "list:growing:appends": Promise("design: exposure", "found tools are appended in one batch, announced once"),
    "list:growing:hold": Promise(
        "design: exposure", "the result waits until the client listed again, at most half a second"
    ),
    "list:growing:budget": Promise("design: exposure", "growth stays within the budget"),
    "list:growing:session": Promise("design: exposure", "growth concerns the session alone"),
    "list:growing:record": Promise(
        "design: exposure", "a grown list is on record; what had to be discovered is one miss"
    ),
    "list:growing:cancel": Promise(
        f"{LEGACY}: basic/utilities/cancellation", "a held result that is cancelled is not sent"
    ),
    "list:full": Promise("design: exposure", "full lists everything, pins marked always-load"),
    "list:budget": Promise("design: exposure", "the list fits its token budget, most used first"),
    "trust:page": Promise("SECURITY.md", "this page says every promise about trust that a test holds, and no other"),
    "trust:list:no-server-alone": Promise(
        "SECURITY.md", "no server fills the first list alone, and what deletes comes last in it"
    ),
    "trust:client:bounded-search": Promise("SECURITY.md", "one client's search or name cannot hold up the others"),
    "list:whole-by-client": Promise(
        "docs/learning.md", "a client is listed everything up to the tokens that its conversations took"
    ),
    "list:model-code": Promise("docs/clients.md", "code of a model, whose prompt holds no list, is listed all tools"),
    "list:whole": Promise("docs/configuration.md", "a catalogue that fits the list's budget is listed whole"),
    "list:small-catalogs-whole": Promise(
        "docs/configuration.md: list_tokens", "all tools are listed where they take at most 10,000 tokens"
    ),
    "list:fill": Promise(
        "docs/learning.md", "what nobody used or asked for is named in a list and not defined, from day one"
    ),
    "list:cold-start": Promise("design: exposure", "without usage the profile's words choose"),
    "list:own-tools": Promise(
        "README: what your client sees", "the definition of discover_tools costs at most 250 tokens"
    ),
    "list:definition-verbatim": Promise("design: calls", "a definition keeps every member its upstream wrote"),
    "list:fan-in": Promise("design: exposure", "an upstream's announcement reaches those who see everything"),
    "instructions:partial": Promise("design: exposure", "instructions say that the list is partial"),
    "pins:always": Promise("design: exposure", "pins are listed whatever the budget"),
    # Policies and profiles
    "policy:auto:unknown": Promise("design: exposure", "unknown and modern clients get a frozen list"),
    "policy:auto:try": Promise("docs/clients.md", "a client that was never measured is tried once, at no loss to it"),
    "policy:auto:ledger-bounded": Promise("docs/clients.md", "a client that gives many names fills no ledger"),
    "policy:auto:known": Promise("design: exposure", "clients known to re-list get a growing one"),
    "policy:auto:demotion": Promise(
        "design: exposure", "a client that does not list again is demoted, also after a restart"
    ),
    "policy:auto:recovery": Promise(
        "docs/clients.md", "one slow answer freezes no client that lists again, and a frozen one recovers"
    ),
    "policy:auto:promotion": Promise("design: exposure", "a client that lists again is grown for"),
    "policy:explicit": Promise("design: exposure", "a policy that is set holds for every client"),
    "profile:own-list": Promise("design: exposure", "each profile has its own list"),
    "profile:denied": Promise(
        "design: exposure", "what a profile leaves out is refused, and the denial is a miss, once per list"
    ),
    "profile:discovery": Promise("design: exposure", "discovery shows nothing of what a profile leaves out"),
    "profile:summary": Promise("design: exposure", "the summary in discover_tools counts the profile alone"),
    # ITR, and instructions
    "itr:scores": Promise("ITR, eq. 3 and Algorithm 1", "hybrid scores, the best M, re-ranked"),
    "itr:selection": Promise("ITR, eq. 4", "greedy by gain per token under one budget over tools and instructions"),
    "itr:assembly": Promise("ITR, section 3.6", "overlay always on, instructions by priority, tools, routing note"),
    "itr:sufficiency": Promise("ITR, section 3.7", "below tau the selection is expanded, else the catalog is shown"),
    "itr:pins": Promise("ITR, section 3.7", "tools pinned to a domain are eligible where a task is in it"),
    "itr:cache": Promise("ITR, sections 3.8 and 12", "cached per task signature until the content changes"),
    "itr:loop": Promise("ITR, Algorithm 1", "one pass, and a second one where the tools do not suffice"),
    "itr:cost-model": Promise("ITR, eqs. 5 to 9, Tables 1 and 2", "the cost model gives what the paper prints"),
    "itr:telemetry": Promise("ITR, section 12", "what was selected, rated, fell back and failed is told"),
    "instructions:chunks": Promise("ITR, section 3.2", "chunks of 200 to 600 tokens"),
    "instructions:ids": Promise("ITR, section 12", "ids are stable, and an edit is noticed"),
    "instructions:unique": Promise("ITR, section 12", "the same words are kept once"),
    "instructions:found": Promise("design: instructions", "fragments are found by the share of the query they have"),
    "instructions:answers": Promise("design: instructions", "fragments that apply come with tools, in the budget"),
    "meaning:first-search": Promise(
        "docs/retrieval.md", "what `init`, `doctor` and `add` have listed is found by meaning from the first search on"
    ),
    "meaning:bare": Promise("docs/retrieval.md", "an installation without extras ranks by meaning"),
    "instructions:safety-in-answers": Promise("docs/configuration.md", "safety texts are in every answer"),
    "instructions:reload": Promise("docs/configuration.md", "a changed file counts from the next search on"),
    "instructions:sources": Promise("design: instructions", "a fragment carries its source; servers make no policy"),
    "instructions:prompts": Promise("docs/configuration.md", "prompts of servers that are up belong to the corpus"),
    "instructions:problems": Promise("docs/configuration.md", "a file that cannot be read is named, others are read"),
    # Steps, and the library
    "step:budget": Promise("design: steps", "tools and instructions of a step are within one budget"),
    "step:instructions-share": Promise(
        "docs/library.md", "instructions are sure of a quarter of a step and get more only where tools leave it"
    ),
    "step:nothing": Promise("design: steps", "where nothing fits, the names of the tools are shown, not the tools"),
    "step:record": Promise("design: steps", "a step is on record as a discovery, with ITR's telemetry"),
    "step:prompt": Promise("design: steps", "the prompt assemble_step gives a step as one text"),
    "library:step": Promise("docs/library.md", "a step has a prompt, tools, a confidence, and calls"),
    "library:shapes": Promise("docs/library.md", "tools come in the shapes of MCP, OpenAI and Anthropic"),
    "library:deferred": Promise("docs/library.md", "models that search deferred tools get our ranking"),
    "library:widen": Promise("docs/library.md", "a self-rating below the threshold widens a step"),
    "library:loop": Promise("ITR, Algorithm 1", "the loop asks again where the tools do not suffice"),
    "library:record": Promise("docs/library.md", "what the library does is on record as a client's doing is"),
    "library:errors": Promise("docs/library.md", "misuse and refusals are exceptions, tools' failures results"),
    "library:examples": Promise("docs/library.md", "the examples run, and end everything they started"),
    "library:light": Promise("docs/library.md", "importing foretool loads nothing of the library"),
    # The prompt hook
    # The local socket
    "local:discovery": Promise(
        "docs/decisions/0022", "a caller finds the running proxy that serves its config, profile and folder"
    ),
    "local:greeting": Promise("docs/decisions/0022", "both sides say the version of the form before anything else"),
    "local:limits": Promise("docs/decisions/0022", "no caller on the local socket costs the proxy's clients anything"),
    "local:stale": Promise("docs/decisions/0022", "the socket of a proxy that was killed is removed, and nothing else"),
    "local:own-user": Promise(
        "docs/decisions/0022", "only processes of our own user are answered, and only theirs are believed"
    ),
    # Windows that share a proxy
    "windows:one-proxy": Promise("docs/decisions/0033", "windows share one proxy and one process of each server"),
    "windows:end": Promise("docs/decisions/0033", "the proxy ends in order soon after the last window has gone"),
    "windows:no-harm": Promise("docs/decisions/0033", "the end of a window, and of its process group, ends no other"),
    "windows:drained": Promise("docs/decisions/0033", "on SIGTERM a call that is answered within 2 s is answered"),
    "windows:failover": Promise(
        "docs/decisions/0033", "when the proxy is killed, open calls get an error and the windows go on"
    ),
    "windows:opening": Promise(
        "docs/decisions/0033",
        "a window answers initialize or server/discover before it has a proxy, as that answered the same line before",
    ),
    "windows:off": Promise("docs/configuration.md", "`share: false` and `--alone` share nothing"),
    "windows:errors": Promise("docs/decisions/0033", "a window says what is wrong with the config, and ends with 2"),
    "windows:isolation": Promise("docs/decisions/0033", "no window sees or cancels the requests of another"),
    "windows:light": Promise("docs/decisions/0033", "a window imports nothing that takes memory"),
    "hint:says": Promise("design: hint", "a prompt is kept, and the tools it may need are named"),
    "hint:working-set": Promise("design: hint", "recorded prompts start the working set"),
    "hint:silent": Promise("design: hint", "whatever is wrong, it is silent and exits with 0"),
    "hint:deadline": Promise("design: hint", "it ends within its deadline"),
    "hint:doubt": Promise("docs/cli.md: hint", "no tool is named where it is doubtful that any fits"),
    "hint:earlier": Promise("docs/cli.md: hint", "a hint before the client has started its server counts for it"),
    "hint:meaning": Promise("docs/cli.md: hint", "where no proxy runs, the encoder ranks too"),
    "hint:unasked": Promise("docs/cli.md: hint", "no tool is named that does what a prompt does not ask for"),
    "hint:talk": Promise("docs/cli.md: hint", "a prompt that names no task is told of no tool and ends no task"),
    "hint:tokens": Promise("design: hint", "it prints at most 300 tokens"),
    "hint:asks": Promise("design: hint", "it asks the running proxy, so that models and history take part"),
    "hint:quotes": Promise("docs/security.md", "words of a server are quoted and cannot pose as ours"),
    "hint:record": Promise(
        "docs/security.md: what is kept", "prompts are kept as the setting record says, without secrets"
    ),
    "shell:bypass": Promise("design: misses", "a command that a tool serves is a miss with the cause bypass"),
    "shell:silent": Promise("design: hint", "the shell's hook says nothing, whatever comes"),
    "judge:asks": Promise("docs/configuration.md", "a judge is asked once where a search is in doubt"),
    "judge:sent": Promise("docs/configuration.md", "a judge is sent task, names and first sentences alone"),
    "judge:fails": Promise("docs/configuration.md", "whatever a judge does, the search is answered as without it"),
    "hint:install": Promise("docs/cli.md", "the hook is put into a client's settings and taken out, nothing else"),
    # Start
    "start:lazy": Promise("design: catalogue", "a known catalogue is listed and searched without starting anything"),
    "start:cold-deadline": Promise("design: upstreams", "the first list waits for cold upstreams until the deadline"),
    "start:search-waits": Promise("docs/configuration.md", "a search waits for starting servers, up to 10 s"),
    "start:kept": Promise("docs/cli.md", "what doctor and search list is known to the next proxy, as far as approved"),
    "start:download": Promise("docs/errors.md", "a launcher that downloads gets time to do so, and to end unharmed"),
    "start:absent": Promise("design: upstreams", "servers of a profile that are starting or down are known by name"),
    "start:greeting-at-once": Promise("design: upstreams", "the greeting waits for nobody"),
    "start:call-waits": Promise("design: upstreams", "a call to a starting upstream waits for it"),
    "start:cold-call": Promise("docs/configuration.md", "a call waits for a silent upstream at most its timeout_s"),
    "start:failed-upstream-named": Promise("design: upstreams", "a call to an upstream that cannot start says why"),
    "start:failed-upstream-retried": Promise("design: upstreams", "a call tries a failed upstream again"),
    "start:offline-cause": Promise("design: misses", "a tool unknown at the list has the cause offline"),
    "start:era-remembered": Promise("design: upstreams", "an upstream's era is remembered across runs"),
    "start:dead": Promise(
        "docs/troubleshooting.md", "nobody waits for a server that is known to fail, and it comes back"
    ),
    "start:empty": Promise("design: upstreams", "an upstream that listed no tools is asked again"),
    "start:idle": Promise("design: upstreams", "an idle upstream can be stopped and comes back when called"),
    "start:unused": Promise(
        "docs/configuration.md", "a server whose callers have all gone is stopped after a while, and no other one"
    ),
    "start:refresh": Promise(
        "docs/configuration.md", "one proxy lists old tools again, and what was started only for that ends again"
    ),
    "start:imports": Promise("README: what your client sees", "serving a list from a warm store imports nothing heavy"),
    # Calls
    "call:verbatim": Promise("design: calls", "results arrive value for value"),
    "call:arguments-verbatim": Promise("design: calls", "arguments arrive as they were written"),
    "call:unseen-schema": Promise(
        "docs/protocol.md", "a call by name that fails is told the arguments of a tool that the list does not define"
    ),
    "call:long": Promise(
        "docs/configuration.md", "a call that takes longer than its client waits goes on, and its result is asked for"
    ),
    "call:long:cancel": Promise("docs/configuration.md", "a long call is cancelled at its server, by its id"),
    "call:long:whose": Promise("docs/security.md", "who did not make a long call learns nothing of it"),
    "call:long:kept": Promise(
        "docs/configuration.md", "the result of a long call survives a restart, or it is said that it will not come"
    ),
    "call:task-declined": Promise(
        f"{LEGACY}: basic/utilities/tasks", "a call that asks to be a task is run as a call, since we declare no tasks"
    ),
    "call:error-verbatim": Promise("design: calls", "errors arrive with code and data"),
    "call:tool-error": Promise(f"{LEGACY}: server/tools", "results with isError are passed on and recorded as such"),
    "call:progress": Promise(f"{LEGACY}: basic/utilities/progress", "progress comes under the client's own token"),
    "call:cancel": Promise(
        f"{LEGACY}: basic/utilities/cancellation", "a cancelled call ends upstream, in silence here"
    ),
    "call:cancel-one": Promise("design: calls", "a cancellation concerns its own call alone"),
    "call:cancel-unknown": Promise(f"{LEGACY}: basic/utilities/cancellation", "unknown cancellations are ignored"),
    "client:gone": Promise("design: calls", "a client that goes takes its calls back and ends its session"),
    # Misses
    "miss:hidden-call": Promise("README: the misses", "a hidden tool called by name works and leaves a miss"),
    "miss:bridge": Promise(
        "README: the misses", "a hidden tool called through the bridge leaves a miss of its own kind"
    ),
    "miss:kept-list": Promise(
        "README: the misses", "before a client has fetched a list, the last one of its kind counts"
    ),
    "miss:listed-is-none": Promise("README: the misses", "a listed tool is no miss"),
    "miss:discovery": Promise("README: the misses", "what a discovery found and was called is a miss with its rank"),
    "miss:search": Promise(
        "README: the misses", "a search that did not show what was called next is a miss with its words and rank"
    ),
    "miss:one-wish": Promise(
        "README: the misses", "a search whose tool was called is not a second miss, however the call ended"
    ),
    "miss:cost-once": Promise("README: the misses", "a search is paid for once and shared by the misses it led to"),
    "miss:cost-of-vain-searches": Promise(
        "README: the misses", "searches in vain are misses, and their cost is that of the tool found in the end"
    ),
    "miss:exposure": Promise("README: the misses", "the list of a miss is the one that lacked the tool"),
    "miss:account": Promise(
        "README: the misses", "the ledger agrees with an account that a client keeps of what it reads"
    ),
    "rates:fifty-tasks": Promise(
        "docs/data.md", "rates come from fifty tasks whose end is known, and never say something absurd"
    ),
    "miss:history": Promise("README: the misses", "a miss keeps the calls before it"),
    "miss:nothing-found": Promise("README: the misses", "a discovery without a match is a miss"),
    "miss:unknown-name": Promise("README: the misses", "an unknown name is an error and a miss"),
    "miss:near-name": Promise("design: the two tools", "a near name is suggested and never run"),
    "miss:seeded": Promise(
        "README: the misses", "the true cause of a seeded miss is named, for every cause and policy"
    ),
    "miss:budget": Promise("README: the misses", "a tool that lost to the budget says so with its rank"),
    # The bridge
    "shell:call": Promise("docs/cli.md", "`foretool call` calls through the shared proxy, as any client does"),
    "shell:rules": Promise("docs/cli.md", "rules and consent bind a call from a shell, and it is on record"),
    "shell:no-list": Promise("docs/cli.md", "a client without a list misses nothing, and reads results whole"),
    "trust:policy:series": Promise(
        "SECURITY.md",
        "a series of calls runs what call_tool runs, no tool of ours, and nothing before all of it is decided on",
    ),
    "series:values": Promise("docs/configuration.md", "later calls of `call_tools` use results of earlier ones"),
    "series:off": Promise("docs/configuration.md", "nobody has `call_tools` unless the setting says so"),
    "series:ends": Promise("docs/configuration.md", "`call_tools` has limits, and ends at the first call that fails"),
    "bridge:arguments": Promise(
        "docs/protocol.md", "arguments that no server accepts come back with the one thing to change and the schema"
    ),
    "bridge:repairs": Promise("docs/protocol.md", "arguments with one meaning are repaired, and nothing else of them"),
    "bridge:forwards": Promise(
        "docs/protocol.md", "what may not fit is sent, and told with the schema if the call fails"
    ),
    "bridge:made-up": Promise(
        "docs/protocol.md", "a bridged call of a tool that does not exist is answered with what its words find"
    ),
    "bridge:itself": Promise("design: the two tools", "call_tool refuses its own name"),
    "bridge:discover": Promise("design: the two tools", "call_tool passes discover_tools on"),
    "bridge:honest": Promise("SECURITY.md", "call_tool is annotated as read-only exactly where it runs nothing else"),
    "bridge:carries": Promise("design: the two tools", "the bridge forwards progress and cancellation"),
    "bridge:by-risk": Promise(
        "README: what your client sees",
        "call_tool runs what is read-only or allowed by a rule, call_tool_write everything, and the wrong one says so",
    ),
    "bridge:one": Promise("docs/configuration.md", "the setting bridges merges both into call_tool"),
    "bridge:answer": Promise("README: what your client sees", "each line of an answer says which bridge takes it"),
    "trust:confirm:asked": Promise(
        "SECURITY.md", "where confirm asks, a call runs after a yes of the user alone: once per tool and session"
    ),
    "trust:confirm:modern": Promise(
        f"{MODERN}: basic/utilities/mrtr", "a modern client is asked by input_required; an answer counts once"
    ),
    "trust:confirm:refused": Promise(
        "SECURITY.md", "a client that cannot ask gets a refusal that names the setting and the way out"
    ),
    "trust:confirm:shown": Promise(
        "SECURITY.md", "the question shows tool, server and arguments, bounded, redacted, one line each"
    ),
    "trust:confirm:bound": Promise(
        "SECURITY.md", "a yes holds for its tool, definition and session, and nobody else can give it"
    ),
    # discover_tools
    "discovery:counts": Promise("design: own tools", "what our definition says of tools and servers is true"),
    "discovery:definition": Promise(
        "README: what your client sees", "its definition costs at most 250 tokens for any number of servers"
    ),
    "discovery:answer": Promise("design: the two tools", "the best match comes first, ready to call"),
    "discovery:sized": Promise("design: the two tools", "an answer is sized by its confidence"),
    "discovery:absent": Promise(
        "design: the two tools", "servers that are away are named where they matter, those that are down once a session"
    ),
    "discovery:calling": Promise("docs/clients.md", "a hidden tool is called through a bridge, in every client"),
    "discovery:once": Promise("docs/clients.md", "a model reads an answer once, as text, in every client"),
    "discovery:reasons": Promise("design: the two tools", "a model is told the reasons that it can act on"),
    "discovery:deprecated": Promise(
        "docs/retrieval.md", "a deprecated tool stands below its replacement, and warnings of descriptions are shown"
    ),
    "discovery:names": Promise("design: the two tools", "names give whole schemas, near ones are offered"),
    "discovery:named-server": Promise(
        "docs/retrieval.md", "a task that names a server gets the tool of that server first"
    ),
    "discovery:trimmed": Promise("design: the two tools", "giant schemas are trimmed and say so"),
    "discovery:slow": Promise("design: ranking", "a remote encoder keeps no other request waiting"),
    "discovery:index": Promise(
        "design: ranking", "an index of thousands of tools is made between calls, and said if short"
    ),
    "discovery:shared": Promise("design: the two tools", "definitions that schemas of an answer share are said once"),
    "discovery:alike": Promise(
        "design: the two tools",
        "of tools that do the same the pinned, the one in use, then the used one leads; all are named",
    ),
    "discovery:budget": Promise("design: the two tools", "schemas are given while the budget lasts"),
    "discovery:nothing": Promise(
        "docs/retrieval.md", "where nothing fits, the nearest tools and the servers are shown in 300 tokens"
    ),
    "discovery:prepared": Promise(
        "docs/retrieval.md", "a search before the tools are embedded says so, and is never judged `none`"
    ),
    "discovery:empty": Promise("design: the two tools", "a search that names nothing is told what to say"),
    "discovery:lines": Promise("design: the two tools", "each line of a task is a need of its own"),
    "discovery:sufficiency": Promise(ITR, "a self-rating below the threshold widens the search"),
    # Learning
    "learn:episodes": Promise("docs/learning.md", "the log is cut into tasks; failures and repeats are no steps"),
    "learn:parts": Promise("docs/learning.md", "what was learned is a named part of each score, and says why"),
    "learn:familiar": Promise(
        "docs/learning.md", "before the first call, `dtdr` counts as far as the task is like a past one"
    ),
    "learn:without": Promise("docs/learning.md", "without models every answer is what it was"),
    "learn:list": Promise("docs/learning.md", "lists follow what was learned, at the next epoch and within the budget"),
    "learn:names": Promise(
        "docs/learning.md",
        "a list names used tools that it cannot define, with most of its tokens",
    ),
    "learn:pick-up": Promise("docs/learning.md", "a running proxy picks up what was learned, once it has given a list"),
    "learn:damaged": Promise("docs/learning.md", "a damaged model is refused and the one before it serves"),
    "learn:promotion": Promise("docs/learning.md", "only what ranks later tasks better is served"),
    "learn:minimum": Promise("docs/learning.md", "each method says what it takes, and what is missing"),
    "learn:trusted": Promise("docs/learning.md", "tool text that changed never enters training"),
    "learn:command": Promise("docs/learning.md", "foretool learn imports, trains, reports and rolls back"),
    "learn:bare": Promise("docs/learning.md", "an installation without extras learns and serves what it learned"),
    "learn:growth": Promise("docs/learning.md", "a growing list gains what is likely next, before it is missed"),
    "learn:prompt": Promise(
        "docs/learning.md", "a growing list gains what a recorded prompt needs, before it is missed"
    ),
    "learn:hint": Promise(
        "docs/learning.md", "a likely hidden tool is named after a call; listed tools answer verbatim"
    ),
    "learn:schedule": Promise("docs/learning.md", "serve learns on a schedule, in a process of its own"),
    "learn:bounded": Promise(
        "docs/learning.md", "a run reads the latest tasks and some of each rare tool, however long the log"
    ),
    "learn:ended": Promise("docs/learning.md", "a run that is ended at any moment is continued, and locks nobody out"),
    "learn:one": Promise("docs/learning.md", "one process learns from a storage file at a time"),
    "learn:profiles": Promise("docs/fleet.md", "a profile goes by its own use of tools once it has enough of it"),
    "learn:opt-out": Promise("docs/fleet.md", "what people did who opted out of learning counts for nobody else"),
    "storage:commit": Promise(
        "docs/configuration.md", "`commit` says whether records are written before or behind answers"
    ),
    "replicas:session": Promise("docs/fleet.md", "a session goes on at any replica, as it was left"),
    "replicas:bound": Promise("docs/fleet.md", "a session is bound to its token and profile at every replica"),
    "replicas:resume": Promise(
        "docs/fleet.md", "an answer is fetched from any replica, and one that cannot come any more is an error"
    ),
    "replicas:letters": Promise("docs/fleet.md", "cancellations, answers and notifications cross replicas"),
    "replicas:changes": Promise(
        "docs/fleet.md", "decisions, changed lists, promoted models and rollbacks of one replica reach the others"
    ),
    "replicas:drained": Promise("docs/fleet.md", "on SIGTERM calls that wait are answered before the process ends"),
    "replicas:killed": Promise(
        "docs/fleet.md", "no answer is lost or doubled while replicas are killed, and each is on record once"
    ),
    "storage:postgres": Promise(
        "docs/postgres.md",
        "every command works with a database, and a restart of the server loses nothing that was answered",
    ),
    "learn:detection": Promise("docs/learning.md", "a task that needs no tool is told apart, and the gate says none"),
    "learn:unseen": Promise("docs/learning.md", "a tool that came after training is still found"),
    "learn:import": Promise("docs/learning.md", "demonstrations are imported, and a wrong file says where"),
    "learn:misses": Promise("docs/learning.md", "training reads which words led to which hidden tool"),
    "conversation:handle": Promise(
        "SEP-2567: explicit state handles", "chats on one process are told apart by the handle of an answer"
    ),
    # Names
    "names:49-characters": Promise("design: names", "every exposed name is plain, its own, at most 49 characters"),
    "names:deterministic": Promise("design: names", "the same tools get the same names"),
    "names:collisions": Promise("design: names", "of several that want a name one keeps it for ever"),
    "names:map-back": Promise("design: names", "every exposed name finds its tool"),
    "names:every-spelling": Promise("design: names", "every upstream name also resolves"),
    "names:empty-prefix": Promise("design: names", "an empty prefix exposes a tool under its own name"),
    # The wire
    "wire:ids": Promise("JSON-RPC 2.0: request object", "an id of any kind comes back as it was"),
    "wire:bad-messages": Promise(
        "JSON-RPC 2.0: error object", "bad messages are answered, and the conversation goes on"
    ),
    "wire:deep-arguments": Promise("design: calls", "nesting of any depth gets some answer"),
    "greeting:legacy": Promise(f"{LEGACY}: basic/lifecycle", "initialize agrees on a version"),
    "greeting:whole": Promise("design: instructions", "a list is called partial only where it is"),
    "greeting:modern": Promise(
        f"{MODERN}: server/discover", "server/discover names what we speak; bad envelopes are refused"
    ),
    "capabilities:union": Promise("design: aggregate", "we declare what the upstreams can"),
    "conformance:server": Promise("MCP conformance suite", "as a server it passes what the fixture alone passes"),
    "conformance:skills": Promise("MCP conformance suite", "the scenarios of skills pass as against a server alone"),
    "conformance:client": Promise("MCP conformance suite", "as a client it passes the client scenarios"),
    # What ends early, and what is whose
    "question:withdrawn": Promise(f"{LEGACY}: basic/utilities/cancellation", "a question can be taken back"),
    "question:elsewhere": Promise(f"{LEGACY}: client/elicitation", "the end of an elicitation by URL is told"),
    "listen:graceful": Promise(f"{MODERN}: basic/patterns/subscriptions", "a subscription we end is answered"),
    "listen:again": Promise(f"{MODERN}: basic/patterns/subscriptions", "one that ends is opened again"),
    "log:whose": Promise("design: exchange", "a log entry goes to the client whose call it tells of"),
    "log:shared": Promise(
        "design: proxy", "an entry of nobody's call goes to those who asked for it, not across profiles and credentials"
    ),
    "log:level": Promise(f"{MODERN}: server/utilities/logging", "entries below the level asked for are not sent"),
    "tasks:declined": Promise("docs/protocol.md", "tasks of the legacy era are declared to no client"),
    "tasks:adapted": Promise("docs/protocol.md", "a task of a server is a plain call for clients that speak no tasks"),
    "tasks:cancel": Promise("docs/protocol.md", "a call that is cancelled cancels the task of its server"),
    "tasks:forwarded": Promise(
        "docs/protocol.md", "a client that speaks tasks gets the tasks of its servers, and no other's"
    ),
    "tasks:kept": Promise(
        "docs/protocol.md", "a task goes on when foretool is started again, and is asked for its result"
    ),
    "meta:trace": Promise(f"{MODERN}: basic", "trace context goes up, and results keep their meta"),
    "apps:found": Promise(
        "docs/protocol.md", "a tool with a page that a search finds comes onto the list, where it may"
    ),
    "apps:resources": Promise("MCP Apps extension", "the page that a tool or a result names is reached"),
    "apps:listed": Promise(
        "docs/protocol.md", "clients that show pages get tools with pages in their list, and a miss of one says so"
    ),
    "http:dynamic": Promise("design: exposure", "the policies hold over HTTP as on stdio"),
    "backpressure:client": Promise("design: edges", "a client that does not read costs bounded memory, and no answer"),
    "backpressure:upstream": Promise("design: links", "an upstream that does not read slows no other"),
    "http:odd-requests": Promise(
        "MCP Python SDK 2: streamable HTTP server", "odd requests get the status and code that the SDK's server gives"
    ),
    "http:sessions": Promise(
        f"{LEGACY}: basic/transports", "sessions are limited, expire when nobody uses them, and end with DELETE"
    ),
    "http:credentials": Promise(
        "design: edges", "a session belongs to the credential and the profile it was opened with"
    ),
    "http:timeouts": Promise("design: edges", "nobody is waited for who sends or takes nothing"),
    "http:slow-client": Promise("design: edges", "a client that does not read costs bounded memory and slows no other"),
    "http:goodbye": Promise(f"{LEGACY}: basic/transports", "a session at an upstream is ended with DELETE"),
    "http:redirects": Promise(
        "docs/protocol.md",
        "a redirect within one origin is followed; of any other the target and the way out are named",
    ),
    "limits:size": Promise(
        "docs/configuration.md", "a message over the limit is refused in words, the next one is read"
    ),
    "http:concurrent": Promise(
        "design: edges", "of many sessions every answer finds its asker, whatever is cancelled or dropped"
    ),
    # Trust: clients over HTTP
    "trust:http:no-probing": Promise(
        "SECURITY.md", "without a token every path answers alike; with one, a profile it does not open does not exist"
    ),
    "trust:http:profiles": Promise("SECURITY.md", "a token reaches the servers of its profiles alone, in both eras"),
    "trust:http:other-tools": Promise(
        "SECURITY.md", "tools of other profiles are answered like tools that do not exist, and the attempt is on record"
    ),
    "trust:http:bound-state": Promise(
        "SECURITY.md", "sessions, streams and requests do not exist for another token or another profile"
    ),
    "trust:http:rotation": Promise(
        "SECURITY.md", "tokens, hosts and origins apply at a reload; what a lost token began ends at once"
    ),
    "trust:http:sessions-share": Promise(
        "SECURITY.md", "one token cannot take the sessions of the others, nor their sign-ins to the page"
    ),
    "trust:http:one-door": Promise(
        "SECURITY.md", "`/ui` and `/metrics` keep the limits of `/mcp`: bodies, requests a minute, wrong tokens"
    ),
    "trust:http:cookie": Promise("SECURITY.md", "the cookie of the page goes to no other port of its host"),
    "trust:http:guesses": Promise(
        "SECURITY.md",
        "after thirty different wrong tokens in a minute an address learns nothing from another one;"
        " who was in stays in",
    ),
    "trust:http:connections": Promise(
        "SECURITY.md", "connections are limited; who shows a token is never shut out by those who show none"
    ),
    "trust:http:headers-deadline": Promise(
        "SECURITY.md",
        "nobody is waited for who does not finish header lines; requests in tiny pieces take a tenth of the loop at"
        " most",
    ),
    "trust:http:issuer": Promise(
        "SECURITY.md", "a token of an authorization server counts only if signed, unexpired, of its issuer and for us"
    ),
    "trust:http:people": Promise(
        "SECURITY.md", "two people of one issuer never share a session, a stream, a handle or what a profile hides"
    ),
    "trust:shared-words": Promise(
        "SECURITY.md", "a model is trained on no word that fewer people than three have used over HTTP"
    ),
    "trust:per-user": Promise(
        "SECURITY.md", "a server with a token for each person gets no token of a client, and mixes no two people"
    ),
    "trust:http:smuggling": Promise("SECURITY.md", "every request shows its own token, in its header lines alone"),
    "trust:http:slow-readers": Promise("SECURITY.md", "what clients do not read is bounded, over all of them"),
    "trust:http:bodies": Promise(
        "SECURITY.md",
        "bodies are read behind a token alone, but for 8 KiB of a sign-in to the page, in bounded time and memory;"
        " large ones keep no small one out",
    ),
    "trust:http:in-flight": Promise("SECURITY.md", "the requests and streams of one session are limited"),
    "trust:http:turns": Promise(
        "SECURITY.md",
        "tokens and people take turns: however many requests one sends, another's waits for a few of them",
    ),
    "trust:http:unix-socket": Promise("SECURITY.md", "a Unix socket serves its own user alone"),
    "trust:audit": Promise(
        "SECURITY.md",
        "the audit log only grows: the database refuses to change or delete an entry, and no command does",
    ),
    "docs:protocol": Promise("docs/protocol.md", "what it names is held by tests"),
    # Upstreams in trouble
    "death:in-flight": Promise(
        "README: when something is wrong", "calls on a dying upstream fail at once, naming it and whether sent"
    ),
    "death:reconnect": Promise("README: when something is wrong", "the next call reconnects"),
    "death:others-unaffected": Promise("README: when something is wrong", "a death concerns no other upstream"),
    "death:not-sent": Promise("README: when something is wrong", "a call that never left says so"),
    "death:logged-once": Promise(
        "docs/troubleshooting.md", "a server that does not start fills no log with the same line"
    ),
    "death:backoff": Promise("design: upstreams", "a crash loop is slowed down"),
    "death:state": Promise("design: upstreams", "the state of each upstream is visible"),
    "death:stop": Promise("design: upstreams", "stopping ends every connection and answers what is in flight"),
    "timeout:call": Promise("design: upstreams", "a call ends after its time and is cancelled upstream"),
    "call:misfit": Promise(
        "docs/protocol.md", "an answer that does not fit the output schema of its tool is passed on, and it is said"
    ),
    "timeout:living": Promise(
        "docs/protocol.md", "a call that reports progress is not given up, whether or not its client asked for it"
    ),
    "timeout:asleep": Promise("design: upstreams", "time in which the proxy was stopped counts for no time-out"),
    "timeout:none": Promise("design: upstreams", "zero sets no time-out"),
    "timeout:silent-start": Promise(
        "README: when something is wrong", "a silent upstream delays the list by the deadline alone"
    ),
    "timeout:silent-lists": Promise(
        "README: when something is wrong", "a silent upstream does not hold up the other lists"
    ),
    "session:expired": Promise(
        f"{LEGACY}: basic/transports", "an expired session is opened again, and the request sent once more"
    ),
    "upstream:forward-proxy": Promise(
        "docs/configuration.md", "a proxy of the environment is used, but not for servers of this machine"
    ),
    "era:fallback": Promise(f"{MODERN}: basic/lifecycle", "an upstream of the other era serves all the same"),
    "era:each-its-own": Promise("design: upstreams", "an upstream of both eras is spoken to in the client's own"),
    "eras:output-schema": Promise(
        f"{MODERN}: server/tools", "each era gets a definition that it can read, and results that fit it"
    ),
    "eras:version": Promise(
        f"{MODERN}: basic/lifecycle", "an upstream that refuses a revision is asked for one it names"
    ),
    "eras:replaced": Promise(
        "design: upstreams", "an upstream that changes its era while it is known is found in the new one"
    ),
    "eras:first-request": Promise("design: upstreams", "the first request of another era finds its upstream"),
    "upstream:strange-messages": Promise("README: when something is wrong", "what is no sensible message does no harm"),
    "upstream:almost": Promise(
        "docs/protocol.md", "a server that keeps to the protocol almost is understood, or named at once"
    ),
    "memory:garbage": Promise("design: calls", "a call leaves nothing behind that only the garbage collector finds"),
    "hostile:messages": Promise("README: when something is wrong", "hostile messages of either side harm nobody else"),
    "upstream:strange-results": Promise(
        "README: when something is wrong", "a result of the wrong shape is answered once"
    ),
    # What upstreams list
    "catalog:bad-tool": Promise("README: when something is wrong", "one bad tool is dropped alone and said"),
    "catalog:odd-tool": Promise("README: when something is wrong", "an odd definition harms nothing else"),
    "catalog:bad-list": Promise("README: when something is wrong", "a broken list is an error of its upstream alone"),
    "catalog:list-again": Promise(
        "docs/architecture.md",
        "an upstream that did not list its tools is asked again, and keeps those it listed before",
    ),
    "catalog:pages": Promise(f"{LEGACY}: server/utilities/pagination", "lists in pages are read to the end"),
    "catalog:no-tools": Promise(f"{LEGACY}: basic/lifecycle", "an upstream without tools is not asked for them"),
    "catalog:changes": Promise("design: upstreams", "changes are taken in, debounced, and announced once"),
    "catalog:duplicate": Promise("design: catalogue", "a tool listed twice is used once and said"),
    "catalog:filters": Promise("docs/configuration.md", "include and exclude decide which tools exist"),
    # Resources, prompts, subscriptions, logs
    # Skills
    "skills:merged": Promise(
        "SEP-2640", "skills of all upstreams are listed, got and read under their server's prefix"
    ),
    "skills:declared": Promise("SEP-2640", "the extension is declared where there are skills"),
    "skills:profile": Promise("design: aggregate", "skills stay inside the profile"),
    "skills:own": Promise("docs/configuration.md", "skills of the user's folders are served to clients that lack them"),
    "skills:projects": Promise("docs/configuration.md", "a project's skills are served where the user allowed it"),
    "skills:found": Promise("docs/configuration.md", "one search finds the skill that fits beside the tools"),
    "skills:budget": Promise("docs/configuration.md", "skills and instructions share a quarter of an answer"),
    "skills:read": Promise("docs/configuration.md", "a model reads a skill with discover_tools, wherever it is from"),
    "skills:step": Promise("docs/library.md", "a step names the skill that fits, within its budget"),
    "trust:skills:pinned": Promise("SECURITY.md", "a skill is pinned with its files; a changed one is held for review"),
    "trust:skills:posing": Promise("SECURITY.md", "no skill of a server takes the URI of another's or of the user's"),
    "trust:skills:folder": Promise("SECURITY.md", "nothing outside the folder of a skill is read"),
    "trust:skills:text": Promise("SECURITY.md", "a skill that is huge or looks wrong is bounded, quoted and marked"),
    "resources:merged": Promise("design: aggregate", "resources are merged in config order, each URI once"),
    "resources:routed": Promise("design: aggregate", "a resource is read where it is"),
    "resources:not-found": Promise(
        f"{MODERN}: server/resources", "an unknown resource has the code of the client's era"
    ),
    "resources:partial": Promise("design: aggregate", "a failing upstream leaves the lists of the others"),
    "resources:late": Promise("design: aggregate", "an upstream that comes late is announced"),
    "resources:profile": Promise("design: aggregate", "resources and prompts stay inside the profile"),
    "prompts:routed": Promise("design: aggregate", "prompts get their server's prefix and find their way back"),
    "completions:routed": Promise("design: aggregate", "completions go to the upstream they concern"),
    "subscriptions:legacy": Promise(f"{LEGACY}: server/resources", "updates reach those who subscribed"),
    "subscriptions:ended": Promise(
        f"{MODERN}: basic/patterns/subscriptions", "upstreams need not tell of what nobody listens to any more"
    ),
    "subscriptions:renewed": Promise("design: aggregate", "an upstream that comes back is subscribed to again"),
    "subscriptions:profile": Promise("design: aggregate", "nobody hears of servers that the profile leaves out"),
    "subscriptions:modern": Promise(
        f"{MODERN}: basic/utilities/subscriptions", "a listener hears what it named, tagged"
    ),
    "logging": Promise(f"{LEGACY}: server/utilities/logging", "logs reach clients at the level they set"),
    # Questions to the client
    "question:legacy": Promise(f"{LEGACY}: client", "a legacy client is asked, its answer goes up"),
    "question:capability": Promise(
        f"{LEGACY}: basic/lifecycle", "what the client cannot do is neither declared nor asked"
    ),
    "question:capability-each": Promise(
        f"{LEGACY}: client/elicitation, client/sampling",
        "each of several clients is asked what it declared; the rest is refused with the specification's codes",
    ),
    "question:progress": Promise(
        f"{LEGACY}: basic/utilities/progress", "what a client reports on a question reaches the upstream that asked"
    ),
    "question:patience": Promise("design: questions", "a call does not time out while its client is being asked"),
    "question:whose": Promise(
        "design: questions", "a question goes to the client whose call it belongs to, or to none"
    ),
    "question:parked": Promise("design: questions", "a modern client answers a legacy upstream with its retry"),
    "question:parked-lost": Promise("design: questions", "a call lost while parked is told once and not repeated"),
    "question:parked-cancelled": Promise("design: questions", "a foreign or unknown state is refused"),
    "question:parked-expired": Promise("design: questions", "a parked call nobody comes back for is cancelled"),
    "question:parked-limit": Promise("design: questions", "only so many calls may be parked"),
    "question:mirror": Promise("design: questions", "a legacy client answers a modern upstream"),
    "question:modern-verbatim": Promise(
        f"{MODERN}: basic/utilities/mrtr", "between modern sides requestState is opaque"
    ),
    "question:roots-changed": Promise(f"{LEGACY}: client/roots", "a change of roots is told to the upstreams"),
    "question:ping": Promise(f"{LEGACY}: basic/utilities/ping", "a ping of an upstream is answered here"),
    # Clients of others
    "clients:inspector": Promise("docs/clients/README.md", "MCP Inspector lists, discovers and calls"),
    "clients:mcporter": Promise("docs/clients/README.md", "mcporter lists and calls through the bridge"),
    # Recording
    "record:levels": Promise(
        "docs/security.md: what is kept", "argument values are kept only where that was asked for"
    ),
    "record:before-answer": Promise("design: recorder", "a call is committed before its answer is sent"),
    "record:refusing-store": Promise("design: recorder", "a refusing store stops no answer and loses nothing"),
    "record:sessions": Promise("design: recorder", "a session is on record with who it was"),
    "record:versions": Promise("design: recorder", "every version of a tool stays on record"),
    "secrets": Promise("docs/security.md: what is kept", "no secret reaches the store, the log or a client"),
    # Reload
    "reload:servers": Promise("docs/configuration.md", "only servers whose entries changed are touched"),
    "reload:filters": Promise("docs/configuration.md", "filters and pins apply without a restart"),
    "reload:settings": Promise("docs/configuration.md", "settings apply to connected clients"),
    "reload:back": Promise("docs/configuration.md", "a server removed and added again works"),
    "reload:broken": Promise("docs/configuration.md", "a broken file leaves the config before it in force"),
    # Accidents
    "anomaly:none": Promise("SQLite: anomaly testing", "the scripted conversation without trouble"),
    "anomaly:answers": Promise(
        "SQLite: anomaly testing", "whatever happens at the k-th answer, each request has one answer"
    ),
    "anomaly:writes": Promise("SQLite: anomaly testing", "whichever write fails, the client notices nothing"),
    # Real processes and servers
    "process:shared-store": Promise(
        "docs/security.md: what is kept",
        "many proxies on one file lose no record, keep none twice, and hold up no answer",
    ),
    "process:kill-9": Promise("README: when something is wrong", "kill -9 loses no answered call and leaves no child"),
    "process:no-orphans": Promise("README: when something is wrong", "however the proxy ends, no child is left"),
    "process:client-killed": Promise(
        "README: when something is wrong", "kill -9 of the client ends proxy and children"
    ),
    "process:upstream-killed": Promise(
        "README: when something is wrong", "kill -9 of an upstream fails its call, the next one works"
    ),
    "process:slow-start": Promise("README: when something is wrong", "an upstream that sleeps delays nobody"),
    "process:garbage": Promise(
        "README: when something is wrong", "garbage and floods on stdout are skipped and counted"
    ),
    "process:bad-upstream": Promise("README: when something is wrong", "a bad upstream says why, the good one works"),
    "process:stdout": Promise("README: when something is wrong", "nothing but protocol is written to stdout"),
    "process:pipe": Promise("design: edges", "requests piped in are answered although the input ends"),
    "process:restart": Promise("README: what your client sees", "a restart lists at once"),
    "real:python": Promise("README: try it", "three servers from PyPI are searched and called"),
    "real:node": Promise("README: try it", "two servers from npm are searched and called"),
    # What comes next (DTDR)
    "dtdr:next": Promise(f"{DTDR}, section 4", "the next tool follows from the task and the calls so far"),
    "dtdr:no-query": Promise("docs/learning.md: DTDR", "without a task the calls so far decide alone"),
    "dtdr:unseen": Promise("docs/learning.md: DTDR", "a tool that came after training is ranked at once"),
    "dtdr:published": Promise(f"{DTDR}, section 4.1", "DTDR-C and DTDR-L run as published, by name"),
    # The repository
    "ranking:address": Promise(
        "docs/retrieval.md", "the words of a web address or a path do not decide which tool is needed"
    ),
    "gate:high": Promise("docs/retrieval.md: confidence", "high says that the first tool is the right one"),
    "gate:unread": Promise("docs/retrieval.md: confidence", "nothing is sure about a task that cannot be read"),
    "gate:harmless": Promise("docs/retrieval.md: confidence", "in doubt no tool that deletes stands first"),
    "gate:use": Promise(
        "docs/retrieval.md: confidence", "high is said more often after right first tools and less after wrong ones"
    ),
    "gate:none": Promise("docs/retrieval.md: confidence", "a task no tool fits is told so"),
    "gate:adaptive": Promise("docs/retrieval.md: confidence", "an answer shows as many tools as the promise takes"),
    "gate:learned": Promise("docs/retrieval.md: confidence", "what something learned ranks surely is never none"),
    "gate:drift": Promise("docs/retrieval.md: confidence", "what no longer holds is said, and the shipped gate serves"),
    "gate:rated": Promise("docs/retrieval.md: confidence", "the client's own rating labels the answer before it"),
    "gate:conformal": Promise("docs/retrieval.md: confidence", "at most eps of needed tools are hidden below k"),
    "gate:recorded": Promise("docs/retrieval.md: confidence", "what was said of an answer is held against what came"),
    "graph:schema": Promise("docs/learning.md: TGR", "definitions tell which tool needs what another gives"),
    "graph:propagation": Promise("docs/learning.md: TGR", "what a found tool depends on is found with it"),
    "ports:equations": Promise("PORTS, eq. 1 to 5", "the losses give what was computed by hand, on numpy and on torch"),
    "ports:export": Promise("docs/learning.md: PORTS", "a trained encoder serves the vectors it was trained to"),
    "encoder:trained": Promise(
        "docs/retrieval.md: which encoder", "training on a log changes how tasks are read, and tools keep their vectors"
    ),
    "encoder:room": Promise(
        "docs/retrieval.md: which encoder", "an encoder is opened without a file beside its package"
    ),
    "masstool:score": Promise("docs/learning.md: MassTool", "a task like an earlier one gets the tools that one took"),
    "masstool:trust": Promise("docs/learning.md: MassTool", "far from all known tasks nothing is added"),
    "masstool:tools": Promise("docs/learning.md: MassTool", "tools that are gone take their share with them"),
    "masstool:tuned": Promise(
        "docs/learning.md: MassTool", "many tasks and foretool[train]: MiniLM is fine-tuned on them"
    ),
    "masstool:detection": Promise("MassTool, section 4.1", "tasks that need no tool are told apart"),
    "masstool:graph": Promise("MassTool, section 4.2.1 and appendix B.1", "QC-GCN: eq. 4, 12, 13, 14"),
    "masstool:search": Promise("MassTool, section 4.2.2", "SUIM: dynamic filtering and eq. 5"),
    "masstool:transfer": Promise("MassTool, section 4.2.3", "AdaKT: the gate, eq. 6 and 7"),
    "masstool:losses": Promise("MassTool, section 4.3", "eq. 3, 8 to 11"),
    "graph:flow": Promise(
        "docs/learning.md: TGR", "a value that flows between calls is noticed; its name alone is kept"
    ),
    "graph:shown": Promise("docs/cli.md: tools", "a tool is shown with what it needs and feeds, and why"),
    "tgr:eq1": Promise("TGR, section 3.1", "the discriminator learns by the cross-entropy of three classes"),
    "tgr:eq2": Promise("TGR, section 3.1", "with the loss averaged within each class"),
    "tgr:eq3": Promise("TGR, section 3.2", "a tool's vector takes in those of the tools it is connected with"),
    # Trust: limits behind us
    "trust:environment:short": Promise(
        "SECURITY.md", "a server gets no variable of ours but the basic ones and those that its entry names"
    ),
    "trust:environment:files": Promise("SECURITY.md", "a server inherits no open file of ours"),
    "trust:environment:doctor": Promise(
        "SECURITY.md", "what names the variable that a failing server missed shows no value and none of our own"
    ),
    "trust:environment:migration": Promise("SECURITY.md", "the smaller environment is said once, at the first start"),
    "trust:processes:left-behind": Promise(
        "SECURITY.md", "what a server starts ends with it and with us, also outside its process group"
    ),
    "trust:risks:file": Promise(
        "SECURITY.md", "a config with secrets that others may read, or that others may write, is reported"
    ),
    "trust:risks:wire": Promise("SECURITY.md", "credentials that leave this machine without encryption are reported"),
    "trust:redirects": Promise(
        "SECURITY.md", "a redirect of a server takes no request and no credential to another origin"
    ),
    "trust:folder:config": Promise(
        "SECURITY.md", "the config of the working folder is not read unless the user names it, and a line says so"
    ),
    "trust:folder:project-config": Promise(
        "SECURITY.md", "only the user's own file lets a project's file be used, which does not choose the database"
    ),
    "trust:shell": Promise(
        "SECURITY.md", "of a command of a client's shell only program and subcommand leave the hook"
    ),
    "trust:folder:hint": Promise("SECURITY.md", "no prompt is written into a database that a repository names"),
    "trust:folder:python": Promise("SECURITY.md", "neither we nor our workers import a module of the working folder"),
    "trust:folder:children": Promise(
        "SECURITY.md", "a server starts in the folder of its config, and runs no program of the working folder"
    ),
    "trust:folder:none": Promise(
        "SECURITY.md", "where a client has no folder open, no server gets the home folder or the disk for it"
    ),
    "trust:limits:validation": Promise("SECURITY.md", "arguments are checked in bounded time, whatever the schema"),
    "trust:limits:bodies": Promise(
        "SECURITY.md", "a body of a remote server takes no more memory than a message may have, however it is packed"
    ),
    "trust:limits:floods": Promise(
        "SECURITY.md",
        "whatever a server sends besides its answers, and whatever it cuts them into, takes a tenth of the loop at"
        " most",
    ),
    "trust:limits:answers": Promise(
        "SECURITY.md", "an answer that would take seconds to take apart is refused, or passes as it is"
    ),
    "trust:limits:logs": Promise("SECURITY.md", "clients get so many log entries a second, and how many were left out"),
    "trust:limits:questions": Promise("SECURITY.md", "one request leads to so many open questions, and no more"),
    "trust:limits:greeting": Promise(
        "SECURITY.md",
        "of what a server says of itself, instructions beyond 65,536 characters, and capabilities or names beyond"
        " 64 KiB, are left out",
    ),
    "trust:limits:tools": Promise(
        "SECURITY.md", "of each list of a server the first max_tools members are used, and it is said"
    ),
    "trust:limits:lists": Promise(
        "SECURITY.md", "a server that keeps a list back delays the answer of the others by about a second, once"
    ),
    "trust:limits:changes": Promise("SECURITY.md", "a server that changes its list without end is asked now and then"),
    "trust:limits:housekeeping": Promise("SECURITY.md", "no slow job and no counter delays the time-outs of calls"),
    "layout": Promise("docs/architecture.md", "every room has a folder of tests"),
    "requirements": Promise(
        "docs/architecture.md", "every promise has a test, every named promise stands in the manifest"
    ),
    # Setting up
    "setup:mended": Promise(
        "docs/errors.md FT206", "doctor --fix has the broken entry of a client start foretool again, in every format"
    ),
    "setup:pages": Promise(
        "docs/clients/README.md", "each client has a page with the entry that init writes and what was seen of it"
    ),
    "setup:dialects": Promise(
        "docs/client-files.md",
        "an entry keeps what it says in its client's own units and words, or a note says what it loses",
    ),
    "setup:conflicts": Promise(
        "docs/client-files.md",
        "two servers of one name are one where one does what both do, and who had one alone is said",
    ),
    "setup:one-screen": Promise(
        "docs/cli.md", "the report of init fits a screen: worst first, what to do once for what has the same cure"
    ),
    "setup:profiles": Promise(
        "docs/client-files.md", "with --profiles each client and each project keeps to the servers that it had"
    ),
    "setup:undo": Promise("README.md", "what init changed comes back byte for byte, and a second init changes nothing"),
    "trust:setup:secrets": Promise("SECURITY.md", "setting up prints no value of a variable or a header"),
    "trust:setup:project": Promise(
        "SECURITY.md",
        "servers of the working folder are taken over only with --project, once it was shown what each starts, and its "
        "files stay as they are",
    ),
    "trust:setup:swap": Promise("SECURITY.md", "what a repository brings changes no server that the user has"),
    "trust:setup:files": Promise(
        "SECURITY.md",
        "our config and the copies of old files are open to their user alone, and no newer file is overwritten",
    ),
    "itr:exemplars": Promise(
        ITR, "an answer shows how its tools were called before, in plain names, types and values, within its tokens"
    ),
    # Managing servers
    "manage:undo": Promise(
        "docs/cli.md", "each edit of the config keeps comments and order and is taken back byte for byte"
    ),
    "manage:list": Promise("docs/cli.md", "list shows each server with its state, its tools and what is wrong"),
    "manage:uninstall": Promise(
        "docs/cli.md", "uninstall gives each client its own servers back, byte for byte if unedited"
    ),
    "manage:add": Promise(
        "docs/cli.md", "add takes a server in every form, starts it once and says how many tools it has"
    ),
    "manage:registry": Promise(
        "docs/cli.md", "what the MCP Registry names is shown, with the values it needs, and added"
    ),
    "trust:manage:registry": Promise(
        "SECURITY.md",
        "what a registry answers is run only after it was shown and agreed to, with a package manager of our choice and"
        " no value of our environment that it did not ask for by name",
    ),
    "trust:manage:secrets": Promise("SECURITY.md", "commands that edit the config print no secret of it"),
    # Signing in
    "trust:sign-in:files": Promise(
        "SECURITY.md", "sign-ins are kept in the keyring, or in files that their user alone can read"
    ),
    "trust:sign-in:token": Promise("SECURITY.md", "a token goes to the address that it was asked for, and to no other"),
    "trust:sign-in:discovery": Promise(
        "SECURITY.md",
        "a server that wants a sign-in has foretool ask nothing of the local network, and nothing without encryption",
    ),
    "trust:sign-in:issuer": Promise(
        "SECURITY.md", "what another authorization server answers is neither used nor shown"
    ),
    "trust:sign-in:redirect": Promise(
        "SECURITY.md", "an answer counts only with the secret of this sign-in, on a port that foretool itself holds"
    ),
    "trust:sign-in:bounded": Promise(
        "SECURITY.md", "an authorization server that never answers, or answers without end, ends its own sign-in alone"
    ),
    "trust:sign-in:silent": Promise(
        "SECURITY.md", "no token stands in a log, a status, an error, the store or the output of a command"
    ),
    "trust:sign-in:words": Promise(
        "SECURITY.md", "words of an authorization server reach no model and steer no terminal"
    ),
    "trust:sign-in:other-server": Promise(
        "SECURITY.md", "sign-in works as the specifications say, before an authorization server that is not ours"
    ),
    "trust:sign-in:machine": Promise(
        "SECURITY.md", "a machine signs in with a secret, a key or a certificate; none of them is written anywhere else"
    ),
    "trust:sign-in:once": Promise(
        "SECURITY.md", "a token is renewed once, however many calls and processes wait for it"
    ),
    # What is kept
    "trust:windows:environment": Promise(
        "SECURITY.md", "windows whose servers would get other variables, programs or storage share no proxy"
    ),
    "trust:windows:folder": Promise(
        "SECURITY.md", "a window of another folder shares no server that works in the folder of its client"
    ),
    "trust:windows:floods": Promise("SECURITY.md", "a window that floods or does not read holds up no other window"),
    "trust:windows:own-user": Promise("SECURITY.md", "no window tells another user's process what its environment is"),
    "trust:data:no-secret-is-written": Promise(
        "SECURITY.md", "no field that a client or a server controls brings a secret into the store or the log"
    ),
    "trust:terminal:rows": Promise(
        "SECURITY.md", "no text of a server or a client makes a row of its own or steers the terminal; JSON is exact"
    ),
    "trust:storage:serves-without": Promise(
        "SECURITY.md", "a proxy serves without its storage file, says so everywhere once, and takes the file up again"
    ),
    "trust:jobs:guarded": Promise(
        "SECURITY.md",
        "a background job that fails ends neither the proxy nor another job; it is said once and tried again",
    ),
    "trust:storage:no-record-lost": Promise(
        "SECURITY.md", "trouble with the file while a proxy runs loses no later record, and another schema none at all"
    ),
    "trust:data:retention": Promise(
        "SECURITY.md", "records older than retention_days are deleted and overwritten, without long locks"
    ),
    "trust:data:forget-person": Promise("docs/cli.md", "what one person did is forgotten, and nothing of others"),
    "trust:data:forget": Promise(
        "SECURITY.md", "what a user wants forgotten leaves no byte in the file or its log, or what remains is said"
    ),
    "trust:data:past-values": Promise("SECURITY.md", "values of earlier calls are shown to nobody"),
    "trust:data:silent-libraries": Promise("SECURITY.md", "no library of ours tells its maker about the machine"),
    "trust:files:odd": Promise(
        "SECURITY.md",
        "no pipe, device, endless file or bomb of aliases holds a command up; what is written is closed to others"
        " whatever the umask",
    ),
    "trust:data:private-files": Promise(
        "SECURITY.md", "the files of the store are closed to other users, or that they are not is said"
    ),
}


def requirement(*ids: str) -> Callable[[Any], Any]:
    """Marks a test as one that holds us to the promises `ids`."""
    unknown = [one for one in ids if one not in MANIFEST]
    if unknown:
        raise KeyError(f"{', '.join(unknown)}: not in tests/requirements.py; say there where the promise comes from")
    return pytest.mark.requirement(*ids)
