"""Which part of a score decides: names, lines, words, usage."""

from __future__ import annotations

from tools import catalog, ids, tool

from foretool.retrieval.confidence import level
from foretool.retrieval.corpus import Corpus
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.ranking import Query, Ranking
from foretool.storage.records import Tool, ToolId, Usage


def pipeline(*more: Tool) -> Pipeline:
    return Pipeline(Corpus([*catalog(), *more]))


def first(ranking: Ranking, count: int = 1) -> list[ToolId]:
    return [each.tool for each in ranking.ranked[:count]]


def test_names_asked_for_come_before_what_the_words_say() -> None:
    query = Query(("convert a time",), names=("web__fetch", "getUser"))
    assert first(pipeline().rank(query), 3) == ids("web__fetch", "users__getUser", "time__convert_time")


def test_every_line_is_served_before_any_line_is_served_twice() -> None:
    query = Query(("list issues of a repository", "convert a time between zones", "", "who registered a domain"))
    wanted = {"github__list_issues", "time__convert_time", "domains__whois_domain"}
    assert set(first(pipeline().rank(query), 3)) == wanted


def test_tools_used_often_and_servers_in_use_come_first_among_equals() -> None:
    twins = [tool(server, "send_mail", "Send a mail.") for server in ("alpha", "beta", "gamma")]
    ranker = pipeline(*twins)
    used = {twins[2].id: Usage(twins[2].id, 3, 0, 1.0)}
    assert first(ranker.rank(Query(("send some mail",)))) == ["alpha__send_mail"], "equals come by name"
    in_use = ranker.rank(Query(("send some mail",), servers_in_use=("beta",))).ranked[0]
    assert (in_use.tool, in_use.reasons) == ("beta__send_mail", ("words: send, mail", "server in use"))
    habit = ranker.rank(Query(("send some mail",)), used).ranked[0]
    assert (habit.tool, habit.reasons) == ("gamma__send_mail", ("words: send, mail", "used before"))
    assert first(ranker.rank(Query(("send_mail",)), used)) == ["gamma__send_mail"]


def test_usage_never_outranks_clearly_better_words_nor_brings_in_a_stranger() -> None:
    used = {ToolId("github__list_issues"): Usage(ToolId("github__list_issues"), 10**6, 99, 1.0)}
    query = Query(("open a new issue",), servers_in_use=("github", "web"))
    ranking = pipeline().rank(query, used)
    assert first(ranking) == ["github__create_issue"]
    assert all(not each.tool.startswith("web__") for each in ranking.ranked)


def test_without_words_usage_is_all_there_is() -> None:
    used = {ToolId("web__fetch"): Usage(ToolId("web__fetch"), 2, 0, 1.0)}
    query = Query(servers_in_use=("domains",))
    ranking = pipeline().rank(query, used)
    assert set(first(ranking, 9)) == {"web__fetch", "domains__whois_domain", "domains__check_availability"}
    assert level(ranking) == "low"


def test_a_chinese_task_without_a_tool_has_the_level_none_by_words() -> None:
    assert level(pipeline().rank(Query(("你觉得哪只猫更可爱",)))) == "none"
    assert level(pipeline().rank(Query(("在仓库里创建一个议题",)))) in ("high", "medium")


def test_among_many_hits_usage_and_names_lift_tools_that_are_not_among_the_best_by_words() -> None:
    tools = [tool("box", f"open_{number}", f"Open the box {'again ' * (number % 7)}") for number in range(1_000)]
    ranker = Pipeline(Corpus(tools))
    usage = {each.id: Usage(each.id, 5, 0, 10.0) for each in tools[::9]}
    for query, total in (
        (Query(("open the box",)), 1_000),
        (Query(("open the box",), ("box__open_777",)), 1_000),
        (Query(("open the box",), servers_in_use=("box",)), 1_000),
        (Query((), ("box__open_5",)), 1),
    ):
        best, whole = ranker.rank(query, usage, 50), ranker.rank(query, usage, 1_000)  # which looks at every score
        assert [(each.tool, each.score) for each in best.ranked] == [
            (each.tool, each.score) for each in whole.ranked[:50]
        ]
        assert best.total == whole.total == total
