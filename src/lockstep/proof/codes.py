"""What the lemmas find and no single run shows: codes, names and pages, as the rules have them."""

PAGES: dict[str, tuple[str, str]] = {
    "LS408": (
        "global_batch_as_declared",
        """The global batch is the original's, or a larger one was declared.

What must hold: one optimizer step takes as many samples over all ranks as the original takes in one process.
Why: a larger batch is another training: fewer steps an epoch, another best learning rate, and another schedule.
How it shows: the batch size of the loader was kept, so N ranks take N times as many samples a step.
Fix: divide the batch size by the number of ranks. Or declare it: --accept LS408.
Example: DataLoader(data, batch_size=64) on 4 ranks is a global batch of 256; batch_size=64 // num_ranks keeps 64.
""",
    ),
    "LS409": (
        "same_samples",
        """The same index gives the same sample as in the original.

What must hold: dataset, transforms and collate make of index i, with the random generators in the same state, what they
make of it in the original.
Why: other samples are another training, and the loss curve alone does not tell why.
How it shows: fed the same indices, the batches differ in their content before any model sees them.
Fix: use the same transforms. Noise may differ by rank only where the original has noise.
Example: an augmentation that only the distributed script has, or one that scales by the rank.
""",
    ),
    "LS410": (
        "loss_over_global_count",
        """A mean over valid targets is a mean over those of all ranks.

What must hold: the loss is the sum over all ranks divided by the count over all ranks.
Why: DDP averages the ranks' gradients with equal weights. Where counts differ (ignore_index, padding), a mean of
local means weighs a target by the rank it lies on.
How it shows: the true gradient is a mean of the ranks' own gradients with other weights than 1/N.
Fix: all-reduce the count before backward; loss = local sum * num_ranks / global count.
Example: 3 valid targets on rank 0 and 13 on rank 1: a gradient that is 31 % wrong.
""",
    ),
    "LS411": (
        "gradient_in_scale",
        """The gradient has the original's scale.

What must hold: averaging over ranks, sums over samples and accumulation together make the original's gradient.
Why: a constant factor is a changed learning rate (with SGD), a changed clipping and weight decay (with all).
How it shows: every gradient is the same multiple of the original's: 1/N for a sum that DDP averages, N for gradients
that are summed over ranks, the number of micro-batches for an accumulated loss that is not divided.
Fix: multiply a summed loss by the number of ranks; divide the accumulated loss by the number of micro-batches.
Example: mse_loss(..., reduction="sum") under DDP steps N times too small.
""",
    ),
    "LS412": (
        "lr_as_declared",
        """The learning rate is the original's, or another one was declared.

What must hold: every step uses the original's rate as long as the global batch is the original's.
Why: the rate follows the global batch, not the number of processes.
How it shows: the rates differ at a step although the gradients are equal.
Fix: remove the scaling. Or declare it: --accept LS412.
Example: lr = 0.1 * world_size with batch_size = 64 // world_size.
""",
    ),
    "LS413": (
        "same_start_as_original",
        """Both start from the same weights.

What must hold: before the first step the parameters are the original's.
Why: without it no step can be compared, and a resumed or fine-tuned training starts elsewhere.
How it shows: parameters differ before the first step; from the original's weights everything is equal.
Fix: seed both alike before the model is built, or load the same weights on every rank before the wrap.
Example: a seed that is set only when there is one process.
""",
    ),
    "LS414": (
        "same_layers",
        """The layers do what the original's do.

What must hold: from the same weights and inputs, with the random generators in the same state, every module returns the
same.
Why: another layer is another model.
How it shows: the first module whose output differs is named; without dropout on both sides everything is equal.
Fix: compare the two models' layers and dropout rates.
Example: a dropout that only the distributed script has.
""",
    ),
    "LS415": (
        "same_data",
        """The program trains on the samples that the original trains on.

What must hold: the training set is the same dataset, the same subset of it, and as large.
Why: fed the original's batches, a program with another split shows the same gradients, and still trains on other data.
How it shows: another number of samples is read in a pass, or another subset of the same size.
Fix: make the split once, from one seed, in both scripts.
Example: random_split with seed 0 in train.py and seed 1 in train_ddp.py, or the validation samples left in.
""",
    ),
    "LS416": (
        "gone_after_a_fault",
        """A rank that fails ends at once, and says so.

What must hold: when one rank fails, its process ends with an exit code other than 0, and all processes of the run are
gone within seconds.
Why: the launcher learns of a failure by the end of a process. While that waits for something, nobody is told: the
other ranks wait for it, and the job holds its machines for the 10 to 30 minutes of a time-out. With code 0 a failed
job counts as done.
How it shows: after an error that was thrown in one rank the process waits in a collective on its way out, or in an exit
handler, or ends with code 0; or the lost connection of another rank is named in its place.
Fix: no collective in `finally`, in `except` or in an exit handler; let errors go up, or end with sys.exit(1).
Example: try: train() finally: dist.barrier(); dist.destroy_process_group(). Without the barrier it is right.
""",
    ),
    "LS417": (
        "whole_after_a_kill",
        """What a killed run has saved can be read.

What must hold: at every moment there is a whole checkpoint, also while the next one is being written.
Why: jobs are killed: preempted, out of time, out of memory. A job that saves is killed while it saves, sooner or later.
How it shows: one rank was killed, and the file that was written last ends too early. With --resume-args the rank is
killed in the middle of its second save; without, a save that is slow enough is hit.
Fix: torch.save(state, "last.tmp"), then os.replace("last.tmp", "last.pt"). Or declare it: --accept LS417.
Example: torch.save(state, "checkpoint.pt") over the checkpoint of the epoch before.
""",
    ),
    "LS418": (
        "nothing_left_running",
        """What a rank has started ends with it.

What must hold: no process that a rank has started outlives the rank, also when that was killed.
Why: a process that stays holds memory, a port or a GPU, and the next run fails for no reason of its own.
How it shows: one rank was killed, and seconds later a process in a session of its own is still there, which ends when
the program ends by itself.
Fix: start it in the rank's own session, or let it end when its standard input, a pipe to the rank, is closed. An exit
handler does not run in a process that is killed. Or declare it: --accept LS418.
Example: subprocess.Popen([...], start_new_session=True) with atexit.register(helper.kill).
""",
    ),
}
