"""What is compared across machines."""

import torch

from lockstep.launch.facts import flat, versions


def test_versions_are_named() -> None:
    facts = versions()
    assert facts["torch"] == torch.__version__
    assert {"Python", "lockstep"} <= facts.keys()
    assert ("GPUs" in facts) == torch.cuda.is_available()


def test_nested_values_have_dotted_names() -> None:
    values = {"seed": 0, "optim": {"lr": 0.02, "betas": [0.9, 0.99], "more": {"a": None}}, "options": {}}
    expected = {"seed": "0", "optim.lr": "0.02", "optim.betas": "[0.9, 0.99]", "optim.more.a": "None", "options": "{}"}
    assert flat(values) == expected
