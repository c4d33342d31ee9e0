from lockstep.rules.evidence.data import sources
from lockstep.rules.evidence.order import repeated, told_epochs
from lockstep.trace.events import SetEpoch
from tests.rules.by_hand import trace
from tests.rules.data_runs import FIRST, FOURTH, SECOND, THIRD, loader, reading, told
from tests.rules.test_new_order import NEW, SAME, passes


def test_orders_that_repeat() -> None:
    assert repeated(sources(passes(SAME))[0]) == 2
    assert repeated(sources(passes(NEW))[0]) == 0
    assert repeated(sources(passes(((FIRST, FIRST), (SECOND, FOURTH))))[0]) == 0, "only on one rank"


def test_part_of_a_pass_is_enough() -> None:
    assert repeated(sources(passes(((FIRST, FIRST[:6]), (SECOND, SECOND[:6]))))[0]) == 2


def test_epochs_of_this_loader_and_of_none() -> None:
    run = passes(SAME, 0, 1)
    assert told_epochs(run, sources(run)[0]) == [0, 1]
    other = SetEpoch(sampler="DistributedSampler", value=5, loader=3)
    sides = [[told(0, None), loader(0, rank), *reading(loader(0, rank), FIRST), other] for rank in (0, 1)]
    run = trace(*sides)
    assert told_epochs(run, sources(run)[0]) == [0]


def test_epochs_that_the_sampler_had_count_as_told() -> None:
    sides = [
        [loader(0, rank), *reading(loader(0, rank), FIRST, epoch=0), *reading(loader(0, rank), THIRD, 1, epoch=1)]
        for rank in (0, 1)
    ]
    run = trace(*sides)
    assert told_epochs(run, sources(run)[0]) == [0, 1]
