"""Label selectors as Kubernetes spells them, for people who type one; the tree is that of ``grammar``.

    selector = [ requirement { "," requirement } ]
    requirement = label [ ( "=" | "==" | "!=" ) value | ( "in" | "notin" ) "(" value { "," value } ")" ] | "!" label
    value = letters, digits and "_", ".", "/", "-"; or nothing

Every requirement has to be met. As in Kubernetes, an absent label satisfies "!=" and "notin". No text but the empty one
is a selector in both languages, so one option takes either. What is stored is always in the language of ``grammar``.
"""

from __future__ import annotations

import re
from typing import Final

from netplug_core.selectors.grammar import (
    And,
    ComparisonOperator,
    Everything,
    HasLabel,
    LabelComparison,
    Not,
    Selector,
    SetMembership,
    SetOperator,
    TokenReader,
    parse,
)

__all__ = ["parse_either"]

# What only the language of pools has: quotes, sets in braces, "&&" and "||", and its functions.
_POOL_LANGUAGE: Final = re.compile(r"""["'{}&|]|(?<![A-Za-z0-9_./-])(?:has|all|global)[ \t]*\(""")

# Every position of every text matches, as in the other grammar.
_TOKEN: Final = re.compile(
    r"[ \t]*(?:(?P<word>[A-Za-z0-9_./-]+)|(?P<sign>==|!=|[=!(),])|(?P<end>\Z)|(?P<unknown>.))", re.DOTALL
)
_COMPARISONS: Final = {
    "=": ComparisonOperator.EQUALS,
    "==": ComparisonOperator.EQUALS,
    "!=": ComparisonOperator.NOT_EQUALS,
}
_SETS: Final = {"in": SetOperator.IN, "notin": SetOperator.NOT_IN}


def parse_either(text: str) -> Selector:
    """The tree of a selector that Kubernetes accepts, or of one that pools accept.

    Raises:
        SelectorError: it is neither; the error is that of the language that the text looks like.
    """
    return parse(text) if _POOL_LANGUAGE.search(text) else _RequirementParser(text, _TOKEN).parse()


class _RequirementParser(TokenReader):
    """Each method reads one rule of the grammar and stops after it."""

    def parse(self) -> Selector:
        if self._kind == "end":
            return Everything.ALL
        terms = [self._requirement()]
        while self._accept(","):
            terms.append(self._requirement())
        if self._kind != "end":
            raise self._error("',' or the end")
        return terms[0] if len(terms) == 1 else And(tuple(terms))

    def _requirement(self) -> Selector:
        if self._accept("!"):
            return Not(HasLabel(self._label("a label")))
        label = self._label("a label or '!'")
        word = self._text
        if word in _COMPARISONS:
            self._advance()
            return LabelComparison(label=label, operator=_COMPARISONS[word], literal=self._value("a value"))
        if word in _SETS:
            self._advance()
            return SetMembership(label=label, operator=_SETS[word], literals=self._values())
        if word in (",", ""):
            return HasLabel(label)
        raise self._error("'=', '!=', 'in', 'notin', ',' or the end")

    def _values(self) -> frozenset[str]:
        self._expect("(", "'('")
        if self._text == ")":
            raise self._error("a value")
        values = {self._value("a value")}
        while self._accept(","):
            values.add(self._value("a value"))
        self._expect(")", "',' or ')'")
        return frozenset(values)

    def _value(self, expected: str) -> str:
        """A value; an empty one ends where the next sign stands."""
        if self._text in (",", ")", ""):
            return ""
        if self._kind != "word":
            raise self._error(expected)
        value = self._text
        self._advance()
        return value
