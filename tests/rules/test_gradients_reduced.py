from lockstep.rules.gradients_reduced import dynamic
from tests.rules.gradient_runs import ALL, NUMEL, backward, forward, optimizer, reduced, run, step, wrap

PLAIN = (optimizer(wrapped=-1), forward(via="plain"), backward())
BY_HAND = tuple(reduced(numel) for numel in NUMEL)


def test_nothing_reduces() -> None:
    findings = list(dynamic(run(lambda rank: [*PLAIN, step(0, rank, ALL)])))
    assert [one.code for one in findings] == ["LS102"]
    assert findings[0].seen.startswith(
        "there is a process group, but no wrapper and no reduction of gradients: in 1 of 1"
    )


def test_a_group_of_one() -> None:
    findings = list(dynamic(run(lambda rank: [wrap(group_size=1), optimizer(), forward(), step(0, rank, ALL)])))
    assert "group has 1 member of 2 ranks" in findings[0].seen
    assert str(findings[0].place) == "/home/me/train.py:20"


def test_a_copy_or_a_part_is_reduced() -> None:
    (copy,) = dynamic(run(lambda rank: [*PLAIN, *BY_HAND, step(0, rank, ALL)]))
    assert copy.seen.startswith("what is reduced by hand is not what the step uses")
    (part,) = dynamic(run(lambda rank: [*PLAIN, *BY_HAND[1:], step(0, rank, (0,))]))
    assert part.seen.startswith("what is reduced by hand is not all of what the step uses")


def test_reduced_by_hand() -> None:
    assert not list(dynamic(run(lambda rank: [*PLAIN, *BY_HAND, step(0)])))


def test_parameters_that_are_averaged_instead_are_left_alone() -> None:
    once = lambda rank: [*PLAIN, step(0, rank, ALL, before="same"), *BY_HAND]  # noqa: E731
    again = lambda rank: [*once(rank), *PLAIN[1:], step(1, rank, ALL, before="same again")]  # noqa: E731
    assert not list(dynamic(run(again)))
