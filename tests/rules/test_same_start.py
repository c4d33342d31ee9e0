from lockstep.core.finding import Place
from lockstep.rules import same_start
from lockstep.trace.events import Event, Loaded, Seed
from tests.rules.state_runs import model, optimizer, run, step


def start(before: str, *events: Event) -> list[Event]:
    return [model(), *events, optimizer(), step(0, before=before)]


def test_ranks_that_start_apart() -> None:
    (finding,) = same_start.dynamic(run(start("aa"), start("bb")))
    assert finding.seen == "before the first step 1 of 2 parameters (0.weight) differ between ranks."
    assert [side.rank for side in finding.witnesses] == [0, 1]
    assert "aa" in finding.witnesses[0].text and "bb" in finding.witnesses[1].text


def test_the_seed_of_each_rank_is_shown() -> None:
    seeds = [Seed(lib="torch", value=value, at="train.py:2") for value in (0, 1)]
    (finding,) = same_start.dynamic(run(start("aa", seeds[0]), start("bb", seeds[1])))
    assert "seeded torch with 0" in finding.witnesses[0].text and "with 1" in finding.witnesses[1].text
    assert finding.place == Place("train.py", 2)


def test_loading_on_one_rank_is_shown_before_seeds() -> None:
    loaded = Loaded(what="module", model=0, matched=4, wanted=4, at="train.py:20")
    seeds = [Seed(lib="torch", value=value, at="train.py:2") for value in (0, 1)]
    (finding,) = same_start.dynamic(run(start("aa", seeds[0], loaded), start("bb", seeds[1])))
    assert finding.place == Place("train.py", 20)
    assert "loaded 4 of 4 weights" in finding.witnesses[0].text


def test_a_model_of_another_size() -> None:
    ranks = [[model(), optimizer(sizes=sizes), step(0, before="aa")] for sizes in ((8, 2), (12, 2))]
    (finding,) = same_start.dynamic(run(*ranks))
    assert finding.seen == "0.weight has 8 elements on rank 0, 12 on rank 1."


def test_only_the_first_step_is_judged() -> None:
    ranks = [[*start("aa"), step(1, before=digest)] for digest in ("cc", "dd")]
    assert not list(same_start.dynamic(run(*ranks)))


def test_left_alone() -> None:
    assert not list(same_start.dynamic(run(start("aa"), start("aa"))))
    seeds = [Seed(lib="torch", value=value) for value in (0, 1)]
    assert not list(same_start.dynamic(run(start("aa", seeds[0]), start("aa", seeds[1])))), (
        "the wrapper made them equal"
    )
    assert not list(same_start.dynamic(run(start("aa"), []))), "a rank that made no step"
    ranks = [[model(0, "FSDPNet"), optimizer(), step(0, before=digest)] for digest in ("aa", "bb")]
    assert not list(same_start.dynamic(run(*ranks))), "each rank holds its shard"
