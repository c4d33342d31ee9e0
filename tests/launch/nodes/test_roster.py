import math

from lockstep.core.errors import RunError, UserError
from lockstep.launch.nodes.roster import GONE_S, Card, Roster, Words, differing, error_from, error_message


def card(node: int, **facts: str) -> Card:
    return Card(node, 3, 2, facts, name=f"host{node}", pid=7)


def test_cards_and_words_travel() -> None:
    one = card(1, torch="2.13")
    assert Card.from_message({**one.to_message(), "later": 1}) == one
    words = Words("step 3", 1, 0, {0: "a", 1: "b", 2: "c"}, True)
    assert Words.from_message(words.to_message()) == Words("step 3", 1, 0, {1: "b", 2: "c"}, True), (
        "the last two reports"
    )
    for error in (UserError("yours"), RunError("the run's")):
        again = error_from(error_message(error))
        assert type(again) is type(error) and str(again) == str(error)


def test_a_lost_connection_is_a_death_only_if_it_stays_lost() -> None:
    roster = Roster(card(0))
    roster.hear(1, Words())
    roster.lose(1)
    assert not roster.others[1].gone
    roster.others[1].lost_at = (roster.others[1].lost_at or math.nan) - GONE_S
    assert roster.others[1].gone
    roster.hear(1, Words())
    assert not roster.others[1].gone, "it is back"
    roster.lose(1, gone=True)
    assert roster.others[1].gone
    roster.hear(1, Words(left=True))
    roster.lose(1, gone=True)
    assert roster.others[1].gone, "it has left without a report"
    roster.hear(1, Words(left=True, want=1, reports={0: "a"}))
    assert roster.others[1].gone, "nor is that of another attempt enough"
    roster.hear(1, Words(left=True, want=1, reports={1: "b"}))
    roster.lose(1, gone=True)
    assert roster.others[1].ended and not roster.others[1].gone, "it has left as it should"


def test_the_first_error_counts() -> None:
    roster = Roster(card(0))
    roster.fail(RunError("first"))
    roster.fail(RunError("second"))
    assert str(roster.error) == "first"
    assert roster.missing() == [0, 1, 2]


def test_progress_is_not_urgent() -> None:
    roster, woken = Roster(card(0)), []
    roster.wake = lambda: woken.append(1)
    roster.say(tell="step 4")
    assert not woken and roster.mine.tell == "step 4"
    roster.say(want=1)
    assert woken


def test_facts_are_compared_with_node_0() -> None:
    same = {0: card(0, a="1", b="2"), 1: card(1, a="1", b="2")}
    assert differing(same) is None
    error = differing({**same, 2: card(2, a="1", b="3")})
    assert str(error).startswith("b is '3' on node 2 and '2' on node 0.") and "host2" in str(error)
    many = {f"key{number}": "x" for number in range(20)}
    assert "; and 14 more." in str(differing({0: card(0), 1: card(1, **many)}))
