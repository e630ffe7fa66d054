"""Whether a selector selects an object: a tree and labels. ``ipam.allocation.pools`` selects nodes and namespaces.

Total: every tree of ``grammar.parse`` has an answer for every set of labels, and nothing is raised.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import assert_never

from netplug_core.selectors.grammar import (
    And,
    ComparisonOperator,
    Everything,
    HasLabel,
    LabelComparison,
    Not,
    Or,
    Selector,
    SetMembership,
    SetOperator,
)

__all__ = ["matches"]

_COMPARISONS: dict[ComparisonOperator, Callable[[str, str], bool]] = {
    ComparisonOperator.EQUALS: operator.eq,
    ComparisonOperator.NOT_EQUALS: operator.ne,
    ComparisonOperator.CONTAINS: operator.contains,
    ComparisonOperator.STARTS_WITH: str.startswith,
    ComparisonOperator.ENDS_WITH: str.endswith,
}


def matches(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether an object with these labels is selected."""
    match selector:
        case Everything():
            return True
        case HasLabel(label):
            return label in labels
        case LabelComparison() | SetMembership():
            return _evaluate_term(selector, labels.get(selector.label))
        case Not(term):
            return not matches(term, labels)
        case And(terms):
            return all(matches(term, labels) for term in terms)
        case Or(terms):
            return any(matches(term, labels) for term in terms)
        case _ as never:
            assert_never(never)


def _evaluate_term(term: LabelComparison | SetMembership, value: str | None) -> bool:
    """Whether a term is true for its label's value; None is an absent label, which differs from every value."""
    if isinstance(term, SetMembership):
        return (value in term.literals) is (term.operator is SetOperator.IN)
    if value is None:
        return term.operator is ComparisonOperator.NOT_EQUALS
    return _COMPARISONS[term.operator](value, term.literal)
