from lockstep.core.finding import Place, Severity
from lockstep.rules import effective_set_epoch
from tests.rules.data_runs import HERE
from tests.rules.test_new_order import NEW, SAME, passes


def test_epochs_that_have_no_effect() -> None:
    (finding,) = effective_set_epoch.dynamic(passes(SAME, 0, 1, sampler="Shuffled"))
    assert (finding.code, finding.severity) == ("LS205", Severity.ERROR)
    assert "set_epoch was called with 0, 1, but all 2 passes over Points/16/16#0 have one order" in finding.seen
    assert finding.witnesses[0].text == "the order is that of Shuffled"
    assert finding.witnesses[1].place == Place(HERE, 20)


def test_left_alone() -> None:
    assert not list(effective_set_epoch.dynamic(passes(NEW, 0, 1)))
    assert not list(effective_set_epoch.dynamic(passes(SAME))), "never called: another rule's"
    assert not list(effective_set_epoch.dynamic(passes(SAME, 3, 3)))
    assert not list(effective_set_epoch.dynamic(passes(SAME, 0, 1, shuffle=False)))
