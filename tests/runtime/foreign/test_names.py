"""Names lose what wrappers put there, and no two become one."""

import pytest

from lockstep.core.errors import UserError
from lockstep.runtime.foreign.names import common_prefix, plain, prefixes_of, printable, renamed, text_of


def test_wrappers_leave_nothing_behind() -> None:
    for name in ("a.w", "module.a.w", "_orig_mod.a.w", "module._orig_mod.a._checkpoint_wrapped_module.w"):
        assert plain(name) == "a.w"
    assert plain("encoder.module.w") == "encoder.module.w"


def test_a_name_cannot_write_on_the_terminal() -> None:
    assert printable("größe 模型\x1b[2Ja\n") == "größe 模型\\x1b[2Ja\\n"


def test_prefixes_are_counted() -> None:
    assert prefixes_of(["module.net.a", "module.net.b"]) == {"module.": 2, "net.": 2}
    assert prefixes_of(["model.a", "model.b", "loss.c"]) == {"model.": 2}
    assert prefixes_of(["unet.a", "unet.b"]) == {"unet.": 2}
    assert prefixes_of(["a", "b"]) == {} and common_prefix(["a.b"]) == "" and common_prefix(["a.b", "a"]) == ""


def test_strip_and_add() -> None:
    names = ["module.model.a", "module.model.b"]
    assert list(renamed(names, ["model."], "net.").values()) == ["net.a", "net.b"]
    assert renamed([*names, "loss.a", "a"], ["model."], only="model.*") == dict(zip(names, ["a", "b"], strict=True))
    assert list(renamed(names, ["model."], "net.", "net.b").values()) == ["net.b"]


@pytest.mark.parametrize(
    ("names", "strip", "told"),
    [
        (["module.a", "a"], [], "module.a and a would both become a"),
        (["x.a", "y.a"], ["x.", "y."], "would both become a"),
        (["model.a"], ["net."], "no name begins with 'net.'"),
        (["model."], ["model."], "nothing would be left"),
    ],
)
def test_what_cannot_be_is_refused(names: list[str], strip: list[str], told: str) -> None:
    with pytest.raises(UserError, match=told):
        renamed(names, strip)


def test_texts_of_values_stay_short() -> None:
    endless: list[object] = []
    endless.append(endless)
    assert [text_of(one) for one in ("a", 5, True, None, 0.5, endless, (0, "a"), (endless,))] == [
        *("a", "5", "True", "None", "0.5", "<list>", "(0, a)", "<tuple>")
    ]
    assert text_of(-(10**5000)) == "<a number of 16610 bits>"


def test_a_message_cannot_write_on_the_terminal() -> None:
    for names, strip in ((["module.\x1ba", "\x1ba"], []), (["\x1b."], []), (["\x1ba"], ["b"])):
        with pytest.raises(UserError) as caught:
            renamed(names, strip)
        assert "\x1b" not in str(caught.value)
