"""The canonical text of a selector, and the short identity derived from it.

Other programs compute the same two texts from the same stored selector, so neither may change. Reading the canonical
text gives the tree it was written from. Not needed to evaluate a selector, so an ADD never loads it.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from typing import assert_never

from netplug_core.selectors.grammar import And, Everything, HasLabel, LabelComparison, Not, Or, Selector, SetMembership

__all__ = ["canonical_text", "selector_uid"]


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
    return f"s:{urlsafe_b64encode(hashlib.sha224(text).digest()).decode().rstrip('=')}"


def _quoted(literal: str) -> str:
    quote = "'" if '"' in literal else '"'
    return f"{quote}{literal}{quote}"
