"""What a rule says about itself, for reports and the docs: its name and its page."""

from lockstep.rules import RULES


def pages() -> dict[str, tuple[str, str]]:
    """{code: (name, docstring)} of every rule."""
    return {rule.CODE: (str(vars(rule)["__name__"]).rpartition(".")[2], rule.__doc__ or "") for rule in RULES}
