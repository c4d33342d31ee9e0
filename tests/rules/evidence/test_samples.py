from lockstep.rules.evidence.data import Reading
from lockstep.rules.evidence.samples import Contents, Relation, moved, relation, same_samples
from lockstep.trace.events import Batch, Pass
from tests.rules.data_runs import loader

IDS = tuple(range(8))


def seen(*passes: dict[str, str]) -> list[Reading]:
    """Passes over eight samples; of each tensor a letter a sample."""
    begin = Pass(loader=0, stream="Points/16/16#0", number=0)
    return [
        Reading(0, loader(), begin, [Batch(loader=0, stream="", number=0, batch=0, ids=IDS, rows=_split(one))])
        for one in passes
    ]


def _split(rows: dict[str, str]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(letters) for name, letters in rows.items()}


def related(first: list[Reading], second: list[Reading]) -> Relation:
    return relation(Contents.of(first), Contents.of(second))


def test_equal_and_other_samples() -> None:
    assert related(seen({"x": "abcdefgh"}), seen({"x": "abcdefgh"})) is Relation.SAME
    one, other = seen(*[{"x": "abcdefgh"}] * 2), seen(*[{"x": "ijklmnop"}] * 2)
    assert related(one, other) is Relation.OTHER
    assert related(one[:1], other) is Relation.UNKNOWN, "who knows whether it would be the same again"
    assert related(seen({}), seen({"x": "abcdefgh"})) is Relation.UNKNOWN


def test_labels_tell_where_images_are_augmented() -> None:
    one = seen({"x": "abcdefgh", "y": "01201201"}, {"x": "ijklmnop", "y": "01201201"})
    other = seen({"x": "qrstuvwx", "y": "01201201"})
    assert related(one, other) is Relation.SAME
    assert related(one, seen(*[{"x": "qrstuvwx", "y": "12012012"}] * 2)) is Relation.OTHER


def test_noise_alone_tells_nothing() -> None:
    one = seen({"x": "abcdefgh"}, {"x": "ijklmnop"})
    assert related(one, seen({"x": "qrstuvwx"})) is Relation.UNKNOWN


def test_equal_labels_of_images_that_are_not_are_no_proof() -> None:
    """Two halves of data whose labels repeat in one pattern."""
    one = seen(*[{"x": "abcdefgh", "y": "01201201"}] * 2)
    other = seen(*[{"x": "ijklmnop", "y": "01201201"}] * 2)
    assert related(one, other) is Relation.UNKNOWN


def test_padded_texts_agree_here_and_there() -> None:
    assert related(seen({"x": "abcdefgh"}), seen({"x": "abcijklm"})) is Relation.SAME
    assert related(seen({"y": "00000000"}), seen({"y": "00001111"})) is Relation.UNKNOWN, "labels agree by chance"


def test_samples_that_have_moved() -> None:
    one, other = (Contents.of(seen({"x": letters})) for letters in ("abcdefgh", "bcdefgha"))
    assert moved(one, other)
    assert not moved(one, one)
    assert not moved(one, Contents.of(seen({"x": "ijklmnop"})))


def test_a_constant_tells_nothing() -> None:
    assert related(seen({"y": "00000000"}), seen({"y": "00000000"})) is Relation.UNKNOWN


def test_indices_are_believed_where_nothing_else_is_known() -> None:
    assert same_samples(seen({}), seen({}))
    assert not same_samples(seen({"x": "abcdefgh"}), seen({"x": "ijklmnop"}))
    assert not same_samples(seen({"y": "00000000"}), seen({"y": "00000000"}))
