"""`python -m lockstep.rules DIR`: what the rules say about a recorded run."""

import sys
from pathlib import Path

from lockstep.rules.judge import judge
from lockstep.trace.trace import read_trace

for finding in judge(read_trace(Path(sys.argv[1]))):
    print(f"{finding.code} {finding.severity}: {finding.seen}\n    must: {finding.must}\n    next: {finding.next_step}")
    for witness in finding.witnesses:
        print(f"    - rank {witness.rank} step {witness.step} {witness.place}: {witness.text}")
