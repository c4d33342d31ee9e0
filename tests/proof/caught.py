"""The page docs/what-is-caught.md: `python -m tests.proof.caught > docs/what-is-caught.md`.

Every row names a program of this repository that has the fault; the tests run it and look for the code.
"""

from dataclasses import dataclass
from pathlib import Path

from lockstep.proof.codes import PAGES
from lockstep.rules.pages import pages

REPO = Path(__file__).resolve().parents[2]
NAMES = {code: name for code, (name, _) in {**pages(), **PAGES}.items()}

INTRODUCTION = """\
# What is caught

<!-- Made by `python -m tests.proof.caught > docs/what-is-caught.md`; change the list there. -->

Kinds of faults that public reports are about, and what finds each: a [rule](rules.md) that looks at what the ranks did,
or a lemma that compares them with one process ([how](verify.md)). Each row was run: the program in the last column has
the fault, and the tests look for the code (`tests/rules/test_twins.py`, `tests/rules/test_gradient_programs.py`,
`tests/rules/test_state_programs.py`, `tests/proof/test_programs.py`, `tests/proof/test_fault.py`).
"""


@dataclass(frozen=True)
class Kind:
    """A kind of fault. shown: a program that has it, below the repository."""

    what: str
    code: str
    shown: str


def twin(what: str, code: str) -> Kind:
    return Kind(what, code, f"twins/{NAMES[code]}/before.py")


def pair(what: str, code: str, name: str) -> Kind:
    return Kind(what, code, f"tests/programs/pairs/pair_{name}.py")


def wrong(what: str, code: str, name: str) -> Kind:
    return Kind(what, code, f"tests/programs/wrong/{name}.py")


def small(what: str, code: str, name: str) -> Kind:
    return Kind(what, code, f"tests/rules/programs/{name}.py")


GROUPS: dict[str, tuple[Kind, ...]] = {
    "Not distributed at all": (
        twin("a script for one process, started on several ranks", "LS100"),
        twin("a process group, and nothing that reduces gradients", "LS102"),
        pair("the same, all ranks race on one checkpoint", "LS102", "37_no_gradient_sync"),
    ),
    "Sampler, shuffle, set_epoch": (
        twin("`set_epoch` never called", "LS204"),
        pair("`set_epoch` out of reach: the sampler is not where the epochs turn", "LS204", "09_set_epoch_missing"),
        twin("`set_epoch` called without effect", "LS205"),
        twin("ranks shuffle with different seeds or epochs", "LS206"),
        pair("a custom sampler draws its permutation from the global generator", "LS206", "17_unseeded_permutation"),
    ),
    "Who reads what": (
        twin("every rank reads everything", "LS201"),
        pair("the sharding sampler is overwritten by another", "LS201", "13_eval_sampler_overwritten"),
        twin("samples that no rank reads", "LS202"),
        twin("an iterable dataset that its workers do not share out", "LS210"),
        twin("ranks have different numbers of batches", "LS209"),
        twin("ranks disagree about the split or the order of the dataset", "LS207"),
        pair("random_split with a generator that depends on the rank", "LS207", "19_random_split_by_rank"),
    ),
    "Evaluation, metrics, losses": (
        twin("padded evaluation counts samples twice", "LS203"),
        twin("the metric of one shard is reported", "LS401"),
        pair("each rank evaluates its own share", "LS401", "47_metric_not_gathered"),
        pair("a local sum divided by the global count", "LS401", "43_local_sum_over_global_count"),
        twin("mean of means over unequal counts", "LS402"),
        wrong("a loss that is a mean of unequal local means", "LS410", "mean_of_unequal_means"),
        twin("a running total reduced again at every batch", "LS403"),
        twin("the result of `reduce` read off its destination", "LS404"),
        twin("all_gather cuts the gradient", "LS407"),
    ),
    "Randomness": (
        twin("the same noise on all ranks", "LS208"),
        pair("the same stochastic masks on all ranks", "LS208", "21_same_masks"),
        twin("the same noise in every epoch", "LS211"),
        twin("different initial weights, reduced by hand", "LS111"),
        pair("the seed depends on the rank before the model is built", "LS111", "39_initial_weights_by_rank"),
        wrong("one rank augments in another way", "LS409", "rank_augmentation"),
        wrong("other initial weights than the original", "LS413", "other_initialisation"),
    ),
    "Gradients that are not averaged": (
        twin("the inner model is called, not its wrapper", "LS101"),
        pair("methods of the inner model make the loss", "LS101", "01_bypass_ddp_forward"),
        pair("models are unwrapped right after the wrap", "LS101", "35_unwrapped_before_training"),
        twin("the last micro-batch runs without synchronisation", "LS103"),
        pair("off by one: the wrong micro-batch is synchronised", "LS103", "03_accumulation_off_by_one"),
        twin("two backwards after one forward", "LS104"),
        twin("a parameter that is not used on every rank", "LS105"),
        twin("a parameter unfrozen, added, replaced or cast after the wrap", "LS106"),
        twin("trained parameters outside of the wrapper", "LS107"),
        twin("`autograd.grad` on wrapped parameters", "LS108"),
        twin("the optimizer holds other parameters", "LS109"),
        wrong("a hand-made reduction that forgets one", "LS102", "missing_all_reduce"),
        twin("`no_sync` around backward only", "LS117"),
    ),
    "Scale": (
        wrong("a sum-reduced loss averaged by DDP", "LS411", "sum_loss"),
        wrong("an accumulated loss that is not divided", "LS411", "accumulation_not_divided"),
        wrong("another learning rate at the same global batch", "LS412", "lr_changed"),
        twin("a schedule of another length than the training", "LS405"),
        twin("a plateau scheduler fed a local value", "LS406"),
        twin("learning rates differ between ranks", "LS119"),
        twin("scaler scales differ between ranks", "LS118"),
    ),
    "State that drifts": (
        twin("parameters drift for another reason", "LS112"),
        small("only rank 0 loads the checkpoint, after the wrap", "LS111", "load_on_rank_0_after_wrap"),
        small("only rank 0 loads the optimizer's state", "LS112", "optimizer_state_on_rank_0"),
        twin("ranks evaluate with their own buffers", "LS115"),
        small("buffers that are never broadcast", "LS115", "buffers_not_broadcast"),
        twin("BatchNorm over a share of the batch", "LS116"),
    ),
    "Collectives": (
        twin("a collective under a rank condition", "LS113"),
        small("a return before a collective", "LS113", "return_before_collective"),
        small("collectives in another order", "LS113", "swapped_reductions"),
        small("collectives of unequal types", "LS113", "unequal_types"),
        twin("evaluation on one rank through the wrapper", "LS114"),
        pair("the same, with a barrier after it", "LS114", "25_evaluation_on_rank_0"),
        small("early stop on one rank", "LS209", "early_stop_on_rank_0"),
        twin("an exception swallowed on one rank", "LS121"),
    ),
    "When one rank fails": (
        wrong("an error skipped on the rank that it falls on", "LS121", "swallows_an_error"),
        wrong("an error that ends with exit code 0", "LS416", "exits_with_zero"),
        wrong("a barrier in `finally`", "LS416", "waits_in_finally"),
        wrong("an exit handler that waits for the other ranks", "LS416", "waits_at_exit"),
        wrong("a checkpoint that a kill leaves half-written", "LS417", "saves_in_place"),
        wrong("a helper process that outlives a killed rank", "LS418", "leaves_a_child"),
    ),
    "Files, downloads, trackers": (
        twin("every rank writes the checkpoint", "LS301"),
        twin("a file read before it is written", "LS302"),
        twin("one writer on each node", "LS303"),
        twin("every rank prepares the data", "LS304"),
        twin("trackers or prints on every rank", "LS305"),
        twin("a state dict of which nothing matches", "LS306"),
        twin("a checkpoint overwritten in place", "LS307"),
    ),
}


def page() -> str:
    """The whole page in Markdown."""
    parts = [INTRODUCTION]
    for group, kinds in GROUPS.items():
        rows = [f"| {kind.what} | {_by(kind.code)} | [{_short(kind.shown)}](../{kind.shown}) |" for kind in kinds]
        parts.append("\n".join([f"## {group}\n", "| kind | caught by | shown by |", "|---|---|---|", *rows, ""]))
    return "\n".join(parts)


def _by(code: str) -> str:
    link = f"[{code}](rules.md#{code.lower()}-{NAMES[code]})"
    return f"{link}, by a lemma" if code in PAGES else link


def _short(path: str) -> str:
    return "/".join(Path(path).parts[-2:])


if __name__ == "__main__":
    print(page(), end="")
