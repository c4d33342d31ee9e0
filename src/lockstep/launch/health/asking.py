"""What the machine is asked for, from the options and the environment."""

import os

from lockstep.core.wish import Wish
from lockstep.launch.health.check import Asked
from lockstep.launch.where import who_takes_part
from lockstep.runtime.world import default_ranks


def asked(wish: Wish) -> Asked:
    """The ranks and machines that a launch with the same options would have.

    Raises:
        UserError: values that do not fit together.
    """
    nodes, nproc = who_takes_part(wish)
    return Asked(nproc or default_ranks("auto"), nodes, dict(os.environ))
