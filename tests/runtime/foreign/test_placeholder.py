"""A placeholder takes everything and does nothing."""

from lockstep.runtime.foreign.placeholder import Foreign, foreign_class


def test_it_keeps_what_it_is_given() -> None:
    one = foreign_class("a.B")(1, 2)
    one[3] = 4
    one.append(5)
    one.add(6)
    one.extend([7])
    one.__setstate__((None, {"x": 8}))
    assert (one.args, one.pairs, one.values, one.attributes) == ((1, 2), [(3, 4)], [5, 6, 7], {"x": 8})
    assert repr(one) == "<a.B>" and isinstance(one(9), Foreign)
