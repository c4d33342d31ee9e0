"""The names and pages of the rules."""

from lockstep.rules import RULES, own_shard
from lockstep.rules.pages import pages


def test_every_rule_has_a_name_and_its_docstring() -> None:
    found = pages()
    assert list(found) == [rule.CODE for rule in RULES]
    assert found[own_shard.CODE] == ("own_shard", own_shard.__doc__)
    assert all(name.isidentifier() and page for name, page in found.values())
