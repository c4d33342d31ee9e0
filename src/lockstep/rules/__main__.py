"""`python -m lockstep.rules DIR`: what the rules say about a recorded run."""

import sys
from pathlib import Path

from lockstep.rules.judge import judge
from lockstep.trace.trace import read_trace


def main(folder: Path) -> None:
    """Print the findings."""
    for finding in judge(read_trace(folder)):
        print(f"{finding.code} {finding.severity}: {finding.seen}")
        print(f"    must: {finding.must}\n    next: {finding.next_step}")
        for witness in finding.witnesses:
            print(f"    - rank {witness.rank} step {witness.step} {witness.place}: {witness.text}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
