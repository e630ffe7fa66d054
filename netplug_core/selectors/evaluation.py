"""Whether a selector selects an object, and the one spelling of a selector.

``ipam.allocation.pools`` selects nodes and namespaces. Total: every tree of ``grammar.parse`` has an answer for every
set of labels, and nothing is raised.
"""

from __future__ import annotations

import operator
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import assert_never

from attrs import evolve

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

__all__ = [
    "canonical_text", "matches", "prefix_labels", "selector_uid",
]  # fmt: skip


# --- canonical -------------------------------------------------------------------------------------------------------


def canonical_text(selector: Selector) -> str:
    """The text that equal selectors have: one space around operators, sets sorted, every group in parentheses."""
    match selector:
        case Everything():
            return selector.value
        case HasLabel(label):
            return f"has({label})"
        case LabelComparison():
            return f"{selector.label} {selector.operator.value} {_quoted(selector.literal)}"
        case SetMembership():
            literals = ", ".join(map(_quoted, sorted(selector.literals)))
            return f"{selector.label} {selector.operator.value} {{{literals}}}"
        case Not(term):
            return f"!{canonical_text(term)}"
        case And(terms) | Or(terms):
            joint = " && " if isinstance(selector, And) else " || "
            return f"({joint.join(map(canonical_text, terms))})"
        case _ as never:
            assert_never(never)


def selector_uid(selector: Selector) -> str:
    """A name of 40 characters; selectors have the same one if and only if their canonical texts are equal."""
    # Text from JSON may contain half of a surrogate pair.
    text = f"s:{canonical_text(selector)}".encode(errors="surrogatepass")
    from hashlib import sha224  # it loads OpenSSL; only policies have identifiers

    return f"s:{urlsafe_b64encode(sha224(text).digest()).decode().rstrip('=')}"


def prefix_labels(selector: Selector, prefix: str) -> Selector:
    """The selector that looks at the labels whose names begin with a prefix, instead of those without it."""
    match selector:
        case Everything():
            return selector
        case HasLabel(label):
            return HasLabel(prefix + label)
        case LabelComparison() | SetMembership():
            return evolve(selector, label=prefix + selector.label)
        case Not(term):
            return Not(prefix_labels(term, prefix))
        case And(terms) | Or(terms):
            return type(selector)(tuple(prefix_labels(term, prefix) for term in terms))
        case _ as never:
            assert_never(never)


def _quoted(literal: str) -> str:
    quote = "'" if '"' in literal else '"'
    return f"{quote}{literal}{quote}"


# --- evaluation ------------------------------------------------------------------------------------------------------


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
