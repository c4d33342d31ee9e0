"""The training on one page, the same for one process and for many.

    python train.py                                       # one process
    torchrun --nproc-per-node 2 train.py optim.lr=1e-3    # two, with one value of config.yaml changed
    lockstep run train.py run.dir=runs/a                  # watched over; the same line again goes on with it

`lockstep train config.yaml` is this page with more options: use one or the other.
"""

import sys
from pathlib import Path

from lockstep.core.errors import Preempted
from lockstep.launch import run_as_rank
from lockstep.recipes.resolve import load_recipe
from lockstep.runtime import fit, load_config
from lockstep.runtime.logs import rank_logs

from distributed import join, run_folder

CONFIG = Path(__file__).with_name("config.yaml")


def main(*overrides: str) -> None:
    """Train as config.yaml and `key=value` words say."""
    # Configuration: one value, checked as a whole before anything starts. It does not say how many ranks there are.
    config = load_config(CONFIG, overrides)

    # Distributed set-up: which rank am I, on which device, where do we write?
    with join(config) as (world, stop_asked):
        run_dir, resume = run_folder(world, config)
        with rank_logs(run_dir / "logs", world.rank, config.log.all_ranks):
            # Model, data, loss and metrics: recipe.py and data.py.
            recipe = load_recipe(config.recipe, config.options)

            # Training: each step's batch is shared out, gradients are those of the whole batch, checkpoints, metrics.
            summary = fit(recipe, config, world, run_dir, resume, launch="train.py", stop_asked=stop_asked)

        if world.is_main:
            print(f"{summary.ending} at step {summary.step}; everything is in {run_dir}")

    if summary.ending == "preempted":
        raise Preempted(f"Preempted after saving step {summary.step}: run.dir={run_dir} goes on.")


if __name__ == "__main__":
    run_as_rank(main, tuple(sys.argv[1:]))  # errors in plain words, and exit codes that a scheduler understands
