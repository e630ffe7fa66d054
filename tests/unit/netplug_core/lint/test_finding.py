"""What a finding shows."""

import pytest

from netplug_core.lint.rules import Finding, Group, Rule, Severity, format_path


@pytest.mark.parametrize(
    "value, shown",
    [(None, "-"), ("10.0.0.0/16", "10.0.0.0/16"), (70000, "70000"), ("a\nb", "'a\\nb'"), (["a"], "['a']")],
)
def test_the_value_is_shown_on_one_line(value: object, shown: str) -> None:
    found = Finding(rule=Rule.POOL_CIDR, source="a", subject="b", field="c", value=value, accepted="d")
    assert found.shown_value == shown


def test_paths() -> None:
    assert format_path(("plugins", 0, "ipam", "ipv4_pools", 1)) == "plugins[0].ipam.ipv4_pools[1]"
    assert format_path(()) == ""


def test_a_rule_has_an_identifier_and_a_group() -> None:
    assert (Rule.UNREADABLE.identifier, Rule.UNREADABLE.group) == ("NP-L001", Group.DOCUMENTS)
    assert (Rule.POOL_OVERLAP.identifier, Rule.POOL_OVERLAP.group) == ("NP-L202", Group.RESOURCES)
    assert Rule.POOL_OVERLAP.severity is Severity.ERROR
