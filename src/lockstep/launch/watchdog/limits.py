"""How long a rank may be silent."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Seconds of silence after which a rank is reported, by what it does, and after which the run is ended.

    step_times, extra_s: in training, so many learned step times and seconds. start_s: before there is a step time to
    learn from. evaluate_s, save_s (also loading), compile_s: while it does that. deadline_s: the run is ended, whatever
    the rank does; 0 for never. Before the first steps, when a script may prepare its data for hours, that holds only
    with `from_start`. link_s: another machine that is not heard for so long is lost.
    """

    step_times: float = 3.0
    extra_s: float = 4.0
    start_s: float = 120.0
    evaluate_s: float = 60.0
    save_s: float = 120.0
    compile_s: float = 600.0
    deadline_s: float = 1800.0
    from_start: bool = False
    link_s: float = 60.0
