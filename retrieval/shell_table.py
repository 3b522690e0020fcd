"""The commands of a shell that a tool may serve as well. Nothing of any other command is ever reported.

No word that somebody typed leaves the hook unless it stands here, and nothing else reaches the proxy, its store or its
log. The shell's own programs (`ls`, `cat`, `grep`, `date`) are left out on purpose: for a file of this machine the
shell is the client's own tool, and calling it goes round nobody. A hook reads this file at each command, so it imports
nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

Shape = tuple[str, ...]
"""A program and its subcommand, all words of `PROGRAMS`."""

_ALONE: Final = "-"
"""Stands for a program that does one thing and has no subcommands: a shell of a database, a program that fetches."""

PROGRAMS: Final[dict[str, tuple[str, str]]] = {
    "gh": ("github", (
        "pr: list view create merge review comment diff close edit checks; issue: list view create close comment edit;"
        " repo: list view create fork; search: code issues prs repos users; run: list view rerun cancel;"
        " workflow: list view run; release: list view create; gist: list view create"
    )),
    "glab": ("gitlab", (
        "mr: list view create merge note close update; issue: list view create close note update;"
        " repo: view create fork search; ci: list view run; pipeline: list view run; release: list view create"
    )),
    "git": ("git", "status log diff show add commit reset branch checkout switch merge push pull fetch clone stash tag"
            " blame rebase remote worktree init"),
    "kubectl": ("kubernetes kubectl k8s", (
        "get describe logs apply create delete scale patch rollout exec explain port-forward cordon drain top"
    )),
    "helm": ("helm kubernetes", "install upgrade uninstall list status rollback"),
    "docker": ("docker", (
        "ps images logs run exec build stop start restart rm pull push inspect; compose: up down ps logs; volume: ls;"
        " network: ls"
    )),
    "psql": ("postgres postgresql", _ALONE),
    "mysql": ("mysql mariadb", _ALONE),
    "mariadb": ("mysql mariadb", _ALONE),
    "duckdb": ("duckdb motherduck", _ALONE),
    "clickhouse-client": ("clickhouse", _ALONE),
    "mongosh": ("mongodb mongo", _ALONE),
    "sqlite3": ("sqlite", f"{_ALONE} .tables .schema"),
    "redis-cli": ("redis valkey", (
        "get set del expire rename type keys scan dbsize info publish hset hget hdel hgetall hexists lpush rpush lpop"
        " rpop lrange llen sadd srem smembers zadd zrange zrem xadd xrange xdel"
    )),
    "argocd": ("argocd argo", "app: list get create delete sync resources logs; cluster: list; proj: get"),
    "sentry-cli": ("sentry", "projects: list; organizations: list; issues: list; releases: list new; events: list"),
    "circleci": ("circleci", "pipeline: list run; workflow: list rerun; job: list"),
    "doctl": ("digitalocean", (
        "apps: list get create delete logs update; compute droplet: list get create delete; compute domain: list get"
        " create delete; databases: list get create delete; kubernetes cluster: list get create delete; account: get"
    )),
    "wrangler": ("cloudflare", (
        "kv key: list get put delete; kv namespace: list; r2 bucket: list create delete; r2 object: get put delete;"
        " d1: list create delete execute; queues: list create delete; secret: list put delete; versions: list view;"
        " deploy rollback"
    )),
    "ldcli": ("launchdarkly", "flags: list get create update delete; environments: list get; projects: list get"),
    "dbt": ("dbt", "run build test compile parse list ls show clone"),
    "airflow": ("airflow", (
        "dags: list trigger pause unpause show details list-runs list-import-errors; tasks: list clear; connections:"
        " list; variables: list get; pools: list get; plugins version; providers: list"
    )),
    "jira": ("jira", "issue: list view create edit delete assign move comment link; sprint: list; project: list;"
             " board: list; epic: list"),
    "linear": ("linear", "issue: list view create update comment; project: list; team: list"),
    "stripe": ("stripe", (
        "customers: list retrieve create update delete; products: list retrieve create; prices: list create; invoices:"
        " list retrieve create; refunds: create; subscriptions: list update cancel"
    )),
    "supabase": ("supabase", "projects: list create; branches: list create delete; functions: list deploy"),
    "heroku": ("heroku", "apps: list info create; ps logs; addons: list; pg: info"),
    "vercel": ("vercel", "list inspect logs; project: list; domains: list"),
    "terraform": ("terraform", "init validate plan apply destroy; workspace: list"),
    "aws": ("aws", (
        "s3: ls; lambda: list-functions invoke; ec2: describe-instances; logs: tail describe-log-groups; ecs:"
        " list-clusters list-services describe-services; dynamodb: list-tables scan query; iam: list-users list-roles"
    )),
    "curl": ("fetch url http web", _ALONE),
    "wget": ("fetch url http web", _ALONE),
}  # fmt: skip
"""By program: words for what it is for, and its subcommands. `pr: list view` stands for `pr list` and `pr view`."""

FETCHING: Final = frozenset(("curl", "wget"))
"""Programs that are reported only where they read a public address."""


def subcommands(program: str) -> frozenset[Shape]:
    """Return the subcommands of a program that may be recorded; () among them means the program without one."""
    found: set[Shape] = set()
    for group in PROGRAMS.get(program, ("", ""))[1].split(";"):
        before, colon, after = group.rpartition(":")
        start = tuple(before.split()) if colon else ()
        found.update((*start, word) if word != _ALONE else () for word in after.split())
    return frozenset(found)


def is_reported(shape: Shape) -> bool:
    """Return whether a command may be recorded: the table knows every word of its shape."""
    return bool(shape) and shape[0] in PROGRAMS and shape[1:] in subcommands(shape[0])
