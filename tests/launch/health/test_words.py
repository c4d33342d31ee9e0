from lockstep.launch.health import words
from lockstep.launch.health.check import Check
from lockstep.launch.health.link import Link
from lockstep.launch.health.ranks import Measured, NodeReport
from lockstep.launch.health.sweep import Row

CHECKS = [
    Check("CPU", "cores", "ok", "2 cores"),
    Check("network", "host name", "warn", "x " * 60, "state the interface"),
    Check("CPU", "threads", "fail", "first\n  second", "mend it"),
]
OTHER = NodeReport(1, "b", {}, (Check("CPU", "cores", "fail", "none"),), Link("network", 0.0))
ROWS = (Row(4096, 0.002, True),)
MEASURED = Measured("gloo", 2, (NodeReport(0, "a", {}, (), Link("network", 0.0)), OTHER), (), ROWS, (0.1, 0.1), (0, 1))


def test_lines_by_group() -> None:
    lines = list(words.lines(CHECKS, "node 1"))
    assert lines[:3] == ["node 1", "CPU", "  ok    cores               2 cores"]
    assert lines[3] == "  fail  threads             first"
    assert lines[4].strip() == "second"
    assert lines[5].strip() == "Next: mend it"
    assert lines[6] == "network"
    assert all(len(line) <= 110 for line in lines)


def test_tally() -> None:
    assert words.tally(CHECKS) == "1 ok, 1 warn, 1 fail"
    assert words.tally([]) == "0 ok, 0 warn, 0 fail"


def test_the_table_of_sizes() -> None:
    head, line = words.table(MEASURED)
    assert head.split() == ["size", "time", "algbw", "busbw"]
    assert line.split() == ["4", "KiB", "2.000", "ms", "2.05", "MB/s", "2.05", "MB/s"]


def test_values_for_a_program() -> None:
    found = words.values(CHECKS[:1], [], None, 0)
    assert (found["status"], found["all_reduce"]) == ("ok", None)
    assert found["nodes"][0]["checks"][0]["seen"] == "2 cores"
    found = words.values(CHECKS[:1], [], MEASURED, 0)
    assert found["status"] == "fail", "the other node's check"
    assert found["all_reduce"]["sizes"][0]["busbw"] == 4096 / 0.002
