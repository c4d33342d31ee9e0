from lockstep.rules.live_optimizer import dynamic
from tests.rules.gradient_runs import ALL, NAMES, backward, forward, model, optimizer, run, step, wrap

SWAPPED = (model(), optimizer(names=("body.weight", "body.bias", "", ""), wrapped=-1))
STEP = (forward(via="plain"), backward())


def test_a_head_replaced_after_the_optimizer_was_built() -> None:
    for num_ranks in (1, 2):
        findings = list(dynamic(run(lambda rank: [*SWAPPED, *STEP, step(0, missing=(2, 3))], num_ranks)))
        assert [one.code for one in findings] == ["LS109"]
        assert "2 of 4 parameters" in findings[0].seen
        assert "head.weight, head.bias of the model in training" in findings[0].seen


def test_a_copy_is_trained() -> None:
    stale = [model(0), optimizer(), model(1), wrap(1), forward(number=1), backward(), step(0, missing=ALL)]
    (found,) = dynamic(run(lambda rank: stale))
    assert "4 of 4 parameters" in found.seen


def test_the_optimizer_holds_what_is_trained() -> None:
    assert not list(dynamic(run(lambda rank: [model(), wrap(), optimizer(), forward(), backward(), step(0)])))


def test_left_alone() -> None:
    unused_part = [model(), optimizer(), *STEP, step(0, missing=(2, 3))]
    frozen_rest = [model(), optimizer(names=NAMES[2:], wrapped=-1), *STEP, step(0, count=2)]
    sometimes = [*SWAPPED, *STEP, step(0, missing=(2, 3)), *STEP, step(1)]
    not_trainable = [SWAPPED[0], optimizer(names=("body.weight", "", "", ""), trainable=(True, False, False, False))]
    for events in (unused_part, frozen_rest, sometimes, [*not_trainable, *STEP, step(0, missing=(1, 2, 3))]):
        assert not list(dynamic(run(lambda rank, events=events: events)))  # type: ignore[misc]
