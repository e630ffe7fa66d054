"""One spelling for all spellings of a selector, and the short identity made of it.

Other programs compute the same two texts from the same stored selector, so neither may change. Reading the canonical
text gives the tree it was written from. Not needed to evaluate a selector, so an ADD never loads it.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from typing import assert_never

from netplug_core.selectors.grammar import Among, And, Compare, Everything, Has, Not, Or, Selector

__all__ = ["canonical", "identity"]


def canonical(selector: Selector) -> str:
    """The text all equal selectors share: one space around operators, sets sorted, every group in parentheses."""
    match selector:
        case Everything():
            return selector.value
        case Has(label):
            return f"has({label})"
        case Compare():
            return f"{selector.label} {selector.relation.value} {_quoted(selector.literal)}"
        case Among():
            literals = ", ".join(map(_quoted, sorted(selector.literals)))
            return f"{selector.label} {selector.membership.value} {{{literals}}}"
        case Not(term):
            return f"!{canonical(term)}"
        case And(terms) | Or(terms):
            joint = " && " if isinstance(selector, And) else " || "
            return f"({joint.join(map(canonical, terms))})"
        case _ as never:
            assert_never(never)


def identity(selector: Selector) -> str:
    """A name of 40 characters for what the selector says: equal canonical texts have it, and no others."""
    # Text that came out of JSON may hold half a surrogate pair, which must not make this fail.
    text = f"s:{canonical(selector)}".encode(errors="surrogatepass")
    return f"s:{urlsafe_b64encode(hashlib.sha224(text).digest()).decode().rstrip('=')}"


def _quoted(literal: str) -> str:
    quote = "'" if '"' in literal else '"'
    return f"{quote}{literal}{quote}"
