"""A misfit is explained key by key, with the names that are near and the step that mends it."""

from lockstep.runtime.state.mismatch import explanation, fit, misfit, near, next_step

OWN = {"enc.w": (4, 3), "enc.b": (4,), "head.w": (2, 4), "head.b": (2,)}


def under(prefix: str) -> dict[str, tuple[int, ...]]:
    return {f"{prefix}{name}": shape for name, shape in OWN.items()}


def test_names_are_fitted_where_that_is_certain() -> None:
    for prefix in ("", "module.", "model.", "module.model.net.", "_orig_mod.model."):
        assert list(fit(under(prefix), OWN).values()) == list(OWN)
    partly = {**under("model."), "loss.w": (1,)}
    assert list(fit(partly, OWN)) == list(partly) and fit(partly, OWN)["model.enc.w"] == "model.enc.w"
    pair = {"module.a": (1,), "a": (1,)}
    assert fit(pair, {"a": (1,)}) == {"module.a": "module.a", "a": "a"}
    assert fit([], OWN) == {}
    assert fit(["a.b"], ["b"]) == {"a.b": "a.b"}  # one name shares nothing with others


def test_all_that_does_not_fit_is_named() -> None:
    theirs = {"enc.w": (4, 3), "enc.bias": (4,), "head.w": (5, 4)}
    found = misfit(theirs, OWN)
    assert found.missing == ["enc.b", "head.b"] and found.surplus == ["enc.bias"]
    assert found.shapes == {"head.w": ((5, 4), (2, 4))} and found and not misfit(OWN, OWN)
    text = explanation("old.pt", theirs, OWN)
    assert "of the model's 4 tensors, 2 missing in the file (enc.b; head.b), 1 not in the model (enc.bias)" in text
    assert "head.w: (5, 4) in the file, (2, 4) in the model" in text
    assert near(found, theirs, OWN) == {"enc.bias": "enc.b"} and "enc.bias looks like the model's enc.b" in text
    assert "use the recipe and options" in text


def test_the_next_step_is_the_one_that_mends_it() -> None:
    def told(theirs: dict[str, tuple[int, ...]], own: dict[str, tuple[int, ...]] = OWN) -> str:
        return next_step("a.ckpt", misfit(theirs, own), theirs, own)

    assert "--strip model. --only 'model.*'" in told({**under("model."), "loss.w": (1,)})
    assert "--add net." in told(OWN, {f"net.{name}": shape for name, shape in OWN.items()} | {"out": (1,)})
    assert "number of classes" in told({**OWN, "head.w": (9, 4), "head.b": (9,)})
    assert "--only" in told({**OWN, "aux.w": (1,)})
    assert "lists all its names" in told({"x": (1,)})


def test_long_lists_are_cut_and_many_names_cost_little() -> None:
    theirs = {f"a.{i}.w": (1,) for i in range(3000)}
    own = {f"b.{i}.w": (1,) for i in range(3000)}
    assert "... and 2995 more" in explanation("x", theirs, own)
