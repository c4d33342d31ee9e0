from lockstep.core.finding import Severity
from lockstep.rules import own_noise
from lockstep.trace.events import Backward, Batch, Event, Forward, Pass, Step
from lockstep.trace.trace import Trace
from tests.rules.by_hand import trace
from tests.rules.data_runs import FIRST, loader, reading, state


def step(
    number: int, of: str, *, samples: bool = False, latent: bool = False, model: bool = False, lib: str = "torch"
) -> list[Event]:
    """One batch; draws move the state of the library on. of: what the state is called."""
    moves = [samples, latent, model]
    names = [f"{of}{number}.{sum(moves[:count])}" for count in range(4)]

    def at(when: str, name: str) -> Event:
        return state(when, **{lib: name})

    batch = Batch(loader=0, stream="Points/16/16#0", number=0, batch=number, ids=(number,), step=number)
    return [
        at("fetch", names[0]),
        batch,
        at("batch", names[1]),
        at("forward", names[2]),
        Forward(model=0, via="wrapper", step=number),
        at("backward", names[3]),
        Backward(step=number),
        Step(optimizer=0, number=number, step=number),
    ]


def run(*names: str, **what: object) -> Trace:
    begin = Pass(loader=0, stream="Points/16/16#0", number=0)
    fields = {"sampler": what.pop("sampler")} if "sampler" in what else {}
    return trace(
        *(
            [loader(0, rank, **fields), begin, *(event for number in range(3) for event in step(number, name, **what))]  # type: ignore[arg-type]
            for rank, name in enumerate(names)
        )
    )


def test_the_same_masks_on_all_ranks() -> None:
    (finding,) = own_noise.dynamic(run("a", "a", model=True))
    assert (finding.code, finding.severity) == ("LS208", Severity.DEVIATION)
    assert "from torch in the forward (dropout and the like): in 3 of 3 draws" in finding.seen
    assert finding.witnesses[1].text == "rank 1 draws from torch in state a0.0"


def test_the_same_augmentation_on_all_ranks() -> None:
    for lib in ("torch", "numpy", "random"):
        (finding,) = own_noise.dynamic(run("a", "a", samples=True, lib=lib))
        assert f"from {lib} while samples are made" in finding.seen


def test_the_same_latent_noise_on_two_of_three_ranks() -> None:
    (finding,) = own_noise.dynamic(run("a", "b", "a", latent=True))
    assert "ranks 0 and 2" in finding.seen
    assert "between a batch and the forward" in finding.seen


def test_the_same_augmentation_in_the_workers() -> None:
    def side(noise: str) -> list[Event]:
        events = [loader(workers=2), *reading(loader(workers=2), FIRST)]
        return [
            type(event)(**{**vars(event), "noise": {"numpy": noise}}) if isinstance(event, Batch) else event
            for event in events
        ]

    (finding,) = own_noise.dynamic(trace(side("a"), side("a")))
    assert "from numpy in the workers" in finding.seen
    assert not list(own_noise.dynamic(trace(side("a"), side("b"))))


def test_left_alone() -> None:
    assert not list(own_noise.dynamic(run("a", "b", samples=True, latent=True, model=True)))
    assert not list(own_noise.dynamic(run("a", "a"))), "nothing is drawn"
    assert not list(own_noise.dynamic(run("a", "a", latent=True, lib="random"))), "the size of the images, say"
    assert not list(own_noise.dynamic(run("a", "a", samples=True, sampler="Drawn"))), "a sampler may draw for all ranks"


def test_what_begins_a_pass_is_left_alone() -> None:
    begin = [Pass(loader=0, stream="s", number=0), state("pass", "a"), state("fetch", "b")]
    first = Batch(loader=0, stream="s", number=0, batch=0, ids=(1,))
    side = [loader(), *begin, first, state("batch", "c"), state("forward", "c"), state("backward", "c")]
    assert not list(own_noise.dynamic(trace(side, side)))
