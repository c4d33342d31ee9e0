"""The rules: one invariant a module. `RULES` is all of them, in the order of their codes."""

from lockstep.rules import (
    all_trained_wrapped,
    distributed,
    every_parameter_used,
    gradients_reduced,
    last_micro_batch_synced,
    live_optimizer,
    local_gradient,
    no_sync_effective,
    one_backward_per_forward,
    same_parameters_as_wrapped,
    through_wrapper,
)
from lockstep.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    distributed,
    through_wrapper,
    gradients_reduced,
    last_micro_batch_synced,
    one_backward_per_forward,
    every_parameter_used,
    same_parameters_as_wrapped,
    all_trained_wrapped,
    local_gradient,
    live_optimizer,
    no_sync_effective,
)
