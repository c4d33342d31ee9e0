"""Pictures of who read what: the counts, the cells, and when they are shown as wrong."""

import xml.etree.ElementTree as ET

import pytest

from lockstep.core.proof import Share
from lockstep.core.report.partition import figures
from tests.core.report.examples import shares


def classes(svg: str) -> set[str]:
    return {word for one in ET.fromstring(svg).iter() for word in one.attrib.get("class", "").split()}


def only(share: Share, suspect: bool = True) -> tuple[str, bool, set[str]]:
    (figure,) = figures((share,), suspect)
    return figure.said, figure.signal, classes(figure.svg) if figure.svg else set()


def test_a_right_partition_is_calm() -> None:
    said, signal, seen = only(shares(64, 2, 1)[0])
    assert said == "64 samples, each read once."
    assert not signal
    assert {"rank0", "rank1"} <= seen
    assert not {"overlap", "nobody"} & seen


def test_everything_read_by_both() -> None:
    said, signal, seen = only(Share("A", 0, 4, ((0, 1, 2, 3), (3, 2, 1, 0))))
    assert said == "4 samples: 4 read by several ranks."
    assert signal
    assert "overlap" in seen


def test_samples_that_nobody_read_and_one_that_is_read_again() -> None:
    said, signal, seen = only(Share("A", 0, 8, ((0, 0, 1), (2, 3))))
    assert said == "8 samples: 1 read more than once by one rank, 4 read by nobody."
    assert signal
    assert {"overlap", "nobody"} <= seen


def test_padding_to_equal_lengths_is_no_signal() -> None:
    said, signal, seen = only(Share("A", 0, 5, ((0, 2, 4), (1, 3, 0))))
    assert said == "5 samples: 1 read by several ranks, padding to equal lengths may repeat 1."
    assert not signal
    assert "overlap" not in seen


def test_a_pass_that_was_cut_is_no_signal_when_no_rule_says_so() -> None:
    said, signal, seen = only(Share("A", 0, 100, ((0, 2), (1, 3))), suspect=False)
    assert said == "100 samples: 96 not read in these steps."
    assert not signal
    assert "nobody" not in seen


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (Share("A", 0, None, ((), ())), "Nothing was read."),
        (Share("A", 0, 0, ()), "Nothing was read."),
        (Share("A", 0, None, ((0, 1), (2,))), "3 samples, each read once."),
        (Share("A", 0, 2, ((0, -1), (1, 7))), "2 samples: outside the data set: 2."),
    ],
)
def test_odd_shares(share: Share, said: str) -> None:
    assert figures((share,))[0].said == said


def test_the_same_order_again_is_said() -> None:
    first, second = shares(16, 2, 2)
    again = Share(first.stream, 2, 16, first.ids)
    half = Share(first.stream, 3, 16, (first.ids[0], second.ids[1][::-1]))
    said = [one.said for one in figures((first, second, again, half), suspect=False)]
    assert "same order" not in said[0] + said[1]
    assert said[2].endswith("Every rank reads in the same order as in pass 0.")
    assert said[3].endswith("Rank 0 reads in the same order as in pass 0.")


@pytest.mark.parametrize("num_ranks", [1, 4, 16, 100])
def test_a_large_data_set_is_drawn_in_bins(num_ranks: int) -> None:
    (figure,) = figures(shares(60_000, num_ranks, 1))
    assert figure.said == "60,000 samples, each read once."
    assert "A cell is about 250 samples" in figure.note
    assert len(figure.svg) < 150_000
    assert ("The first 64 of 100 ranks are drawn." in figure.note) == (num_ranks == 100)
    assert len(figure.rows) == num_ranks


def test_one_missing_sample_of_many_is_seen() -> None:
    (figure,) = figures((Share("A", 0, 60_000, (tuple(range(30_000)), tuple(range(30_001, 60_000)))),))
    assert figure.said == "60,000 samples: 1 read by nobody."
    assert "nobody" in classes(figure.svg)


def test_cells_lie_where_the_samples_are() -> None:
    (figure,) = figures((Share("A", 0, 4, ((0, 1), (2, 3))),))
    paths = [one.attrib["d"] for one in ET.fromstring(figure.svg).iter("path")]
    assert [path.count("M") for path in paths] == [2, 2]
    assert paths[0].startswith("M96 4h253")
    assert paths[1].startswith("M604 22h253")


def test_of_many_passes_the_wrong_ones_are_shown() -> None:
    bad = Share("A", 50, 8, ((0, 1, 2, 3), (0, 1, 2, 3)))
    found = figures((*shares(8, 2, 20), bad))
    assert len(found) == 9
    assert [one.title for one in found[-2:]] == ["A, pass 50", "13 more passes"]
    assert found[-1].said == "None of them has overlap or gaps."
    assert figures((bad,) * 10)[-1].said == "2 of them with overlap or gaps."
