"""The programs that the proof is tried on: how each is launched, and what a proof has to say about it."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent

RIGHT = "right"
MIRROR, SHARD, RESUME = "lemma:mirror", "lemma:shard", "lemma:resume"
PASS, ABSTAIN, ERROR = "PASS", "ABSTAIN", "ERROR"
MISSED = "missed"
"""A known missed alarm: wrong, and not caught."""


@dataclass(frozen=True)
class Program:
    """A program and what is expected of a proof of it.

    Attributes:
        name: its path under `tests/programs`.
        expected: `right`: no finding but notes, and no lemma broken; a rule's code or a `lemma:...`: each of them is
            found; PASS, FAIL, ABSTAIN or ERROR (nasty ones): one of these is how the proof ends.
        args: of its command line, in every run.
        launch: `torchrun` (the ranks are started from outside) or `spawn` (it starts them itself, `args` then says how
            many and `reference_args` asks for one).
        reference: the single process to compare with, a path like `name`; "": itself, as one process.
        reference_args: of the reference's command line.
        accept: codes of deviations that the user has declared; without them a right program is not passed.
        mirrors: every rank may be fed the whole batch. Not so where the arithmetic depends on the share; then only the
            shares prove it.
        shares: ranks can be fed slices of the reference's batches. Not so where no loader hands them out.
        cpu: it runs under a plain torchrun without GPUs.
        ends: it comes to an end by itself, in seconds.
        note: what to know about it.
    """

    name: str
    expected: tuple[str, ...]
    args: tuple[str, ...] = ()
    launch: str = "torchrun"
    reference: str = ""
    reference_args: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()
    mirrors: bool = True
    shares: bool = True
    cpu: bool = True
    ends: bool = True
    note: str = ""

    @property
    def path(self) -> Path:
        """Absolute."""
        return ROOT / self.name

    @property
    def reference_path(self) -> Path:
        """Absolute."""
        return ROOT / (self.reference or self.name)

    @property
    def title(self) -> str:
        """Short and unique, to name a test: `right/lr_scaled --batch-per-rank 8`."""
        against = ["against", self.reference.removesuffix(".py")] if self.reference else []
        return " ".join([self.name.removesuffix(".py"), *self.args, *against])


def right(name: str, *args: str, **more: object) -> Program:
    return Program(f"right/{name}.py", (RIGHT,), args, **more)  # type: ignore[arg-type]


def wrong(name: str, *expected: str, **more: object) -> Program:
    return Program(f"wrong/{name}.py", expected, **more)  # type: ignore[arg-type]


def pair(name: str, *expected: str, **more: object) -> Program:
    return Program(f"pairs/pair_{name}.py", expected, **more)  # type: ignore[arg-type]


def nasty(name: str, *expected: str, **more: object) -> Program:
    return Program(f"nasty/{name}.py", expected, **more)  # type: ignore[arg-type]


RIGHT_PROGRAMS = (
    right("plain"),
    right("accumulation"),
    right("amp_bf16"),
    right("amp_scaler"),
    right("gan", note="latent noise in the shape of the share, from the rank's own generator"),
    right("iterable_workers", note="no indices; the global batches are the same at 1 and 2 ranks"),
    right("manual_all_reduce", note="seeded by rank before the model is built, then broadcast: no finding"),
    right("batch_sampler"),
    right("sync_batch_norm", cpu=False),
    right("find_unused_branches", note="torch warns on standard error that no parameter was unused in the first step"),
    right("compiled"),
    right("sum_by_fixed_batch", mirrors=False, note="the last batch of an epoch is smaller, on purpose"),
    right("accumulation_by_ranks", mirrors=False),
    right("sum_and_count"),
    right("gathered_contrastive", mirrors=False, note="torch 2.13 warns that this gather is deprecated"),
    right("lr_scaled"),
    right(
        "lr_scaled",
        "--batch-per-rank",
        "8",
        accept=("LS408", "LS412"),
        mirrors=False,
        note="batch and rate grow with N",
    ),
    right("mp_spawn", "--spawn", "2", launch="spawn", reference_args=("--spawn", "1")),
    right("clip_and_schedule"),
    right("several_loaders"),
    right("validates_on_rank_0"),
    right("validates_sharded"),
    right("dropout_own_seed"),
    right("resumable"),
    right("fails_cleanly"),
    right("skips_together", note="what fails on one rank is left out on all: the fault rung sees no fault in it"),
    right("gpu_only", cpu=False, note="names GPUs without asking; CPUs stand in for them"),
    right("pair_train_ddp", reference="right/pair_train.py"),
    right("pair_train_ddp"),
)

WRONG_PROGRAMS = (
    wrong("unsynced_batch_norm", "LS116", SHARD),
    wrong("mean_of_unequal_means", SHARD, note="a deviation, and what many trainings do"),
    wrong("missing_all_reduce", "LS102", SHARD, note="mirrored, it is right: every rank has the whole gradient"),
    wrong("stale_optimizer", "LS109", MIRROR),
    wrong("rank_augmentation", MIRROR, reference="wrong/rank_augmentation_reference.py"),
    wrong("sum_loss", SHARD),
    wrong("accumulation_not_divided", SHARD, mirrors=False, note="two batches of the loader to a reference's one"),
    wrong("lr_changed", MIRROR),
    wrong("other_initialisation", MIRROR),
    wrong("bypassed_wrapper", "LS101", SHARD, note="mirrored, it is right: every rank has the whole gradient"),
    wrong("dropout_extra", MIRROR, note="right once stochastic layers are off"),
    wrong("swallows_an_error", "LS121"),
    wrong("exits_with_zero", "LS416"),
    wrong("waits_in_finally", "LS416"),
    wrong("waits_at_exit", "LS416"),
    wrong("saves_in_place", "LS417", note="slowly, so that the end of another rank ends it while it saves"),
    wrong("leaves_a_child", "LS418"),
    wrong("resume_forgets_momentum", RESUME, note="`--epochs N`, `--resume checkpoint.pt`, as right/resumable.py"),
    wrong("resume_forgets_epoch", RESUME),
    wrong("resume_forgets_schedule", RESUME),
    wrong("resume_in_mid_epoch", RESUME),
    wrong("resume_module_prefix", RESUME, note="LS306 where the run resumes: nothing matched"),
    wrong("resume_same_shuffle", RESUME),
)

PAIR_PROGRAMS = (
    pair("01_bypass_ddp_forward", "LS101"),
    pair("03_accumulation_off_by_one", "LS103"),
    pair("05_set_epoch_missing", "LS204"),
    pair("07_set_epoch_missing", "LS204", note="as one process the loader shuffles by itself"),
    pair("09_set_epoch_missing", "LS204", note="the epochs turn in a class that has the loader, not the sampler"),
    pair("13_eval_sampler_overwritten", "LS201", note="the training is right; only the evaluation is not shared"),
    pair("17_unseeded_permutation", "LS206"),
    pair("19_random_split_by_rank", "LS207", note="weights differ by rank before the wrap, which broadcasts them"),
    pair("21_same_masks", "LS208"),
    pair("25_evaluation_on_rank_0", "LS114", note="ends by an error of the group after 5 s"),
    pair("27_checkpoint_on_all_ranks", "LS301"),
    pair("35_unwrapped_before_training", "LS101"),
    pair("37_no_gradient_sync", "LS102", "LS301", note="two faults, as in the original"),
    pair("39_initial_weights_by_rank", "LS111"),
    pair("41_plateau_on_local_loss", "LS406"),
    pair("43_local_sum_over_global_count", "LS401"),
    pair("45_running_total_reduced", "LS403"),
    pair("47_metric_not_gathered", "LS401"),
    pair("49_adversarial_source", MISSED, note="hidden, since the ranks' own generators are all seeded alike"),
    pair("49_adversarial_source_local", SHARD, note="seen even so: the shares climb to different sources"),
    pair("51_gather_changes_pairing", SHARD, mirrors=False),
)

NASTY_PROGRAMS = (
    nasty("never_steps", ABSTAIN),
    nasty("needs_stdin", ERROR, note="standard input must be empty, not the terminal"),
    nasty("sys_exit_in_middle", PASS),
    Program("nasty/sys_exit_in_middle.py", (ERROR,), ("--code", "3")),
    nasty("os_exit", PASS, ERROR, note="its steps were all made; its end was not told"),
    nasty("changes_directory", PASS),
    nasty("no_loader", ABSTAIN, shares=False),
    nasty("crashes_at_import", ERROR),
    nasty("syntax_error", ERROR),
    nasty("deadlocks", ERROR, ends=False),
    nasty("deadlocks_on_ranks", "LS113", ends=False, note="right as one process"),
    nasty("writes_gigabytes", PASS, ERROR, note="PASS only if nobody stops it: 3 GB a process"),
    nasty("forks_children", PASS, note="children live on for two minutes unless somebody ends them"),
    nasty("prints_a_lot", PASS),
    nasty("closes_stdout", PASS),
    nasty("redefines_print", PASS),
    nasty("bare_except", "LS121", note="an exception that should stop it in a step does not"),
    nasty("infinite_loop_after", PASS, ABSTAIN, ERROR, ends=False, note="all its steps are made before"),
    nasty("signal_handlers", ERROR, ends=False, note="only SIGKILL ends it"),
    nasty("imports_sibling", PASS),
    nasty("uses_main_guard_pickle", PASS),
    nasty("warnings_as_errors", PASS),
    nasty("ünï code/train me", PASS),
)

PROGRAMS = (*RIGHT_PROGRAMS, *WRONG_PROGRAMS, *PAIR_PROGRAMS, *NASTY_PROGRAMS)

HELD_BY_OTHERS = ("nasty/parts/__init__.py", "nasty/parts/nets/__init__.py", "nasty/parts/nets/small.py")
"""Python files here that are no programs."""


def named(title: str) -> Program:
    """The program with this title."""
    return next(one for one in PROGRAMS if one.title == title)


def named_file(name: str) -> Program:
    """The first program in this file."""
    return next(one for one in PROGRAMS if one.name == name)
