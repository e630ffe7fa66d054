"""Whether a selector selects: a tree held against labels. ``ipam.pools`` asks it of nodes and namespaces.

Total: every tree of ``grammar.parse`` has an answer for every set of labels, and nothing is raised.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import assert_never

from netplug_core.selectors.grammar import (
    Among,
    And,
    Compare,
    Everything,
    Has,
    Membership,
    Not,
    Or,
    Relation,
    Selector,
)

__all__ = ["matches"]

_RELATIONS: dict[Relation, Callable[[str, str], bool]] = {
    Relation.EQUALS: operator.eq,
    Relation.DIFFERS: operator.ne,
    Relation.CONTAINS: operator.contains,
    Relation.STARTS_WITH: str.startswith,
    Relation.ENDS_WITH: str.endswith,
}


def matches(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether an object with these labels is selected."""
    match selector:
        case Everything():
            return True
        case Has(label):
            return label in labels
        case Compare() | Among():
            return _holds(selector, labels.get(selector.label))
        case Not(term):
            return not matches(term, labels)
        case And(terms):
            return all(matches(term, labels) for term in terms)
        case Or(terms):
            return any(matches(term, labels) for term in terms)
        case _ as never:
            assert_never(never)


def _holds(term: Compare | Among, value: str | None) -> bool:
    """Whether a term holds of its label's value; None is an absent label, which differs from everything."""
    if isinstance(term, Among):
        return (value in term.literals) is (term.membership is Membership.IN)
    if value is None:
        return term.relation is Relation.DIFFERS
    return _RELATIONS[term.relation](value, term.literal)
