"""A proof as a whole: what it says of itself. Whole programs are in test_programs.py and tests/test_verify.py."""

from pathlib import Path

from lockstep.core.finding import Finding, Place, Severity, Witness
from lockstep.core.outcome import Exit
from lockstep.core.proof import Difference, Proof, Rung, Status
from lockstep.proof.prove import prove, sources
from lockstep.proof.question import Question
from lockstep.proof.takes import Settings
from lockstep.trace.script import Program
from tests import small_training
from tests.proof.apart import apart


def ask(script: Path, accept: tuple[str, ...] = (), argv: tuple[str, ...] = ()) -> tuple[Proof, list[str]]:
    told: list[Rung] = []
    question = Question(Program(script, argv, script.parent), settings=Settings(steps=3), accept=accept)
    proof = prove(question, told.append)
    assert told == list(proof.rungs)
    return proof, [rung.name for rung in told]


def test_what_a_proof_holds(tmp_path: Path) -> None:
    script = small_training.write(tmp_path / "here" / "train.py")
    proof, names = apart(ask, script, ("LS116",), folder=tmp_path)
    assert names == ["one process", "distributed path", "2 processes", "partition", "mirror", "shard", "fault"]
    assert proof.exit is Exit.DONE
    assert (proof.program, proof.reference) == ("train.py", "train.py (one process)")
    assert (proof.num_ranks, proof.accepted) == (2, ("LS116",))
    assert [len(curve.values) for curve in proof.curves] == [3, 3]
    assert (
        proof.curves[0].values == proof.curves[1].values
        or abs(proof.curves[0].values[0] - proof.curves[1].values[0]) < 1e-12
    )
    assert [(share.number, share.length) for share in proof.shares] == [(0, 16), (1, 16)]
    assert {one.rank for one in proof.timeline} == {0, 1}
    assert proof.digests.keys() == {"program", "reference", "arguments", "torch", "python"}
    assert proof.seconds >= max(rung.seconds for rung in proof.rungs)


def test_digests_name_what_was_proven(tmp_path: Path) -> None:
    script = tmp_path / "here" / "train.py"
    script.parent.mkdir()
    script.write_text("x = 1")
    first, _ = apart(ask, script, folder=tmp_path)
    other, _ = apart(ask, script, (), ("--epochs", "2"), folder=tmp_path)
    script.write_text("x = 2")
    changed, _ = apart(ask, script, folder=tmp_path)
    assert first.exit is Exit.UNJUDGED
    assert first.digests["program"] == first.digests["reference"] == other.digests["program"]
    assert first.digests["arguments"] != other.digests["arguments"]
    assert first.digests["program"] != changed.digests["program"]


def test_sources_of_what_is_pointed_at(tmp_path: Path) -> None:
    for name in ("a.py", "b.py", "c.py"):
        (tmp_path / name).write_text(name)

    def place(name: str) -> Place:
        return Place(str(tmp_path / name), 1)

    finding = Finding("LS101", Severity.ERROR, "", "", "", (Witness("x", place=place("b.py")), Witness("none")))
    rungs = [
        Rung("2 processes", Status.FAIL, "", findings=(finding,)),
        Rung("mirror", Status.FAIL, "", (Difference(0, "loss", place=place("a.py")), Difference(0, "lr"))),
        Rung("shard", Status.FAIL, "", (Difference(0, "loss", place=place("gone.py")),)),
    ]
    assert sources(rungs) == {str(tmp_path / "a.py"): "a.py", str(tmp_path / "b.py"): "b.py"}
    (tmp_path / "a.py").write_bytes(b"\xff")
    assert sources(rungs)[str(tmp_path / "a.py")] == "�"
