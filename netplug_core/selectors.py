"""The selector language: its tree, the reader of its text, whether it selects an object, and Kubernetes' own spelling.

    expression = conjunction { "||" conjunction }
    conjunction = term { "&&" term }
    term = { "!" } ( "(" expression ")" | "all()" | "global()" | "has(" label ")" | label comparison )
    comparison = ( "==" | "!=" | "contains" | "starts with" | "ends with" ) literal | ( "in" | "not in" ) set
    set = "{" [ literal { "," literal } [ "," ] ] "}"
    literal = text in single or double quotes; there are no escapes
    label = 1 to 512 letters, digits and "_", ".", "/", "-"

Space and tab may stand between any two tokens, even inside "not in", or not at all. Text without a token selects
everything. A word is a keyword only where no label could stand, so labels may be called "in", "has" or "all".
``resources.validation`` reads what a user hands in, ``ipam.allocation.pools`` what is stored; neither looks at text
itself. Evaluation is total: every tree of :func:`parse` has an answer for every set of labels, and nothing is raised.

:func:`parse_either` also reads label selectors as Kubernetes spells them, for people who type one::

    selector = [ requirement { "," requirement } ]
    requirement = label [ ( "=" | "==" | "!=" ) value | ( "in" | "notin" ) "(" value { "," value } ")" ] | "!" label
    value = letters, digits and "_", ".", "/", "-"; or nothing

Every requirement has to be met. As in Kubernetes, an absent label satisfies "!=" and "notin". No text but the empty one
is a selector in both languages, so one option takes either. What is stored is always in the first language.
"""

from __future__ import annotations

import enum
import operator
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Final, assert_never

from attrs import evolve, frozen

__all__ = [
    "SELECTOR_PARENTHESES", "SELECTOR_PATTERN", "And", "ComparisonOperator", "Everything", "HasLabel",
    "LabelComparison", "Not", "Or", "Selector", "SelectorError", "SetMembership", "SetOperator", "TokenReader",
    "canonical_text", "leaf_terms", "matches", "parse", "parse_either", "prefix_labels", "selector_uid",
]  # fmt: skip


# --- grammar ---------------------------------------------------------------------------------------------------------


# Pairs of parentheses inside one another, in the text as it is and in its canonical form: the bound of every recursion
# over either, so that no text can exhaust the stack and the canonical text of what is accepted is accepted too.
_MAX_DEPTH = 64
_MAX_LABEL_LENGTH = 512
_MAX_QUOTED_LENGTH = 24
_CACHE_SIZE = 1024
_MAX_DEPTH_TEXT = f"at most {_MAX_DEPTH} groups inside one another"


class SelectorError(ValueError):
    """A text that is not a selector: the position (1 is the first character), what was found and what was expected."""

    @classmethod
    def at(cls, position: int, *, found: str, expected: str) -> SelectorError:
        """The error for what was found at a position."""
        return cls(f"position {position}: found {found}, expected {expected}")


class Everything(enum.Enum):
    """A term that selects everything; by labels alone, the two mean the same."""

    ALL = "all()"
    GLOBAL = "global()"


class ComparisonOperator(enum.Enum):
    """How the value of a label is compared with a literal; an absent label satisfies only ``NOT_EQUALS``."""

    EQUALS = "=="
    NOT_EQUALS = "!="
    CONTAINS = "contains"
    STARTS_WITH = "starts with"
    ENDS_WITH = "ends with"


class SetOperator(enum.Enum):
    """How the value of a label is compared with a set; an absent label satisfies only ``NOT_IN``."""

    IN = "in"
    NOT_IN = "not in"


@frozen
class HasLabel:
    """The label is there, whatever its value."""

    label: str


@frozen(kw_only=True)
class LabelComparison:
    """The value of a label stands in a relation to a literal; a literal holds quotes of one sort at most."""

    label: str
    operator: ComparisonOperator
    literal: str


@frozen(kw_only=True)
class SetMembership:
    """The value of a label is one of a set, or is none of it."""

    label: str
    operator: SetOperator
    literals: frozenset[str]


@frozen
class Not:
    """The opposite of a term that is not itself a ``Not``."""

    term: Selector


@frozen
class And:
    """All of two terms or more."""

    terms: tuple[Selector, ...]


@frozen
class Or:
    """At least one of two terms or more."""

    terms: tuple[Selector, ...]


Selector = Everything | HasLabel | LabelComparison | SetMembership | Not | And | Or


def parse(text: str) -> Selector:
    """The tree of a text; trees are cached by text.

    Raises:
        SelectorError: the text is no selector, or nests too deep.
    """
    return _parse(text)


@lru_cache(maxsize=_CACHE_SIZE)
def _parse(text: str) -> Selector:
    selector = _Parser(text, _TOKEN).parse()
    if (depth := _depth(selector)) > _MAX_DEPTH:
        raise SelectorError.at(1, found=f"groups {depth} deep", expected=_MAX_DEPTH_TEXT)
    return selector


def leaf_terms(selector: Selector) -> Iterator[Everything | HasLabel | LabelComparison | SetMembership]:
    """The terms of a selector from left to right, without the operators that negate and join them."""
    match selector:
        case Everything() | HasLabel() | LabelComparison() | SetMembership():
            yield selector
        case Not(term):
            yield from leaf_terms(term)
        case And(terms) | Or(terms):
            for term in terms:
                yield from leaf_terms(term)
        case _ as never:
            assert_never(never)


def _depth(selector: Selector) -> int:
    """Pairs of parentheses inside one another in the canonical text."""
    match selector:
        case Everything() | HasLabel() | LabelComparison() | SetMembership():
            return 0
        case Not(term):
            return _depth(term)
        case And(terms) | Or(terms):
            return 1 + max(map(_depth, terms))
        case _ as never:
            assert_never(never)


# Every position of every text matches, so reading can fail in one place only: where a token is not the one expected.
_TOKEN = re.compile(
    r"""[ \t]*(?:
    (?P<word>[A-Za-z0-9_./-]+) | (?P<literal>"[^"]*"|'[^']*') | (?P<sign>&&|\|\||==|!=|[!(){},])
    | (?P<end>\Z) | (?P<unclosed>["']) | (?P<unknown>.)
    )""",
    re.VERBOSE | re.DOTALL,
)
_GAP = r"[ \t]*"
_QUOTED = r"""("[^"]*"|'[^']*')"""
_NAME = r"[A-Za-z0-9_./-]+"
_TERM = "|".join(
    (
        rf"(all|global){_GAP}\({_GAP}\)",
        rf"has{_GAP}\({_GAP}{_NAME}{_GAP}\)",
        rf"{_NAME}{_GAP}(==|!=){_GAP}{_QUOTED}",
        rf"{_NAME}[ \t]+(contains|(starts|ends){_GAP}with){_GAP}{_QUOTED}",
        rf"{_NAME}[ \t]+(not{_GAP})?in{_GAP}\{{{_GAP}({_QUOTED}{_GAP}(,{_GAP}{_QUOTED}{_GAP})*(,{_GAP})?)?\}}",
    )
)
_OPERAND = rf"[ \t(!]*({_TERM})[ \t)]*"
SELECTOR_PATTERN = rf"^{_GAP}({_OPERAND}((&&|\|\|){_OPERAND})*)?$"
"""A regular expression (RE2) for schemas, which have no parser. Every selector matches it.

What matches is a selector if its parentheses match too, and labels are not too long.
"""

SELECTOR_PARENTHESES = r"""["][^"]*["]|'[^']*'|[()]"""
"""A regular expression (RE2) whose matches are the parentheses of a selector, and literals, which may have some too."""

_FUNCTIONS = {"all": Everything.ALL, "global": Everything.GLOBAL}
_OPERATORS: dict[str, ComparisonOperator | SetOperator] = {
    operator.value.replace(" ", ""): operator
    for operators in (ComparisonOperator, SetOperator)
    for operator in operators
}
_SECOND_WORDS = {"starts": "with", "ends": "with", "not": "in"}


class TokenReader:
    """A parser that looks one token ahead: what parsers of several grammars share.

    ``pattern`` matches at every position. Its groups ``word``, ``unclosed`` and ``end`` are what they are called, and
    every alternative is a named group.
    """

    def __init__(self, text: str, pattern: re.Pattern[str]) -> None:
        self._tokens = pattern.finditer(text)
        self._advance()

    def _label(self, expected: str) -> str:
        if self._kind != "word":
            raise self._error(expected)
        label = self._text
        if len(label) > _MAX_LABEL_LENGTH:
            found = f"a label of {len(label)} characters"
            raise SelectorError.at(self._position, found=found, expected=f"at most {_MAX_LABEL_LENGTH}")
        self._advance()
        return label

    def _accept(self, text: str) -> bool:
        """Whether the next token is this one; if so, it is consumed."""
        is_here = self._text == text
        if is_here:
            self._advance()
        return is_here

    def _expect(self, text: str, expected: str) -> None:
        if not self._accept(text):
            raise self._error(expected)

    def _advance(self) -> None:
        token = next(self._tokens)
        self._kind = str(token.lastgroup)  # there is always one: every alternative is a named group
        self._text: str = token[self._kind]
        self._position = token.start(self._kind) + 1

    def _error(self, expected: str) -> SelectorError:
        text = self._text if len(self._text) <= _MAX_QUOTED_LENGTH else f"{self._text[:_MAX_QUOTED_LENGTH]}..."
        found = {"end": "the end", "unclosed": f"{text!r} that is never closed"}.get(self._kind, repr(text))
        return SelectorError.at(self._position, found=found, expected=expected)


class _Parser(TokenReader):
    """Each method reads one rule of the grammar and stops after it."""

    def parse(self) -> Selector:
        if self._kind == "end":
            return Everything.ALL
        selector = self._expression(0)
        if self._kind != "end":
            raise self._error("'&&', '||' or the end")
        return selector

    def _expression(self, depth: int) -> Selector:
        terms = [self._conjunction(depth)]
        while self._accept("||"):
            terms.append(self._conjunction(depth))
        return terms[0] if len(terms) == 1 else Or(tuple(terms))

    def _conjunction(self, depth: int) -> Selector:
        terms = [self._term(depth)]
        while self._accept("&&"):
            terms.append(self._term(depth))
        return terms[0] if len(terms) == 1 else And(tuple(terms))

    def _term(self, depth: int) -> Selector:
        is_negated = False
        while self._accept("!"):
            is_negated = not is_negated
        term = self._group(depth + 1) if self._text == "(" else self._simple_term()
        if not is_negated:
            return term
        return term.term if isinstance(term, Not) else Not(term)

    def _group(self, depth: int) -> Selector:
        if depth > _MAX_DEPTH:
            raise self._error(_MAX_DEPTH_TEXT)
        self._advance()
        selector = self._expression(depth)
        self._expect(")", "'&&', '||' or ')'")
        return selector

    def _simple_term(self) -> Selector:
        name = self._label("a label, 'has(', 'all()', '!' or '('")
        if name in ("has", *_FUNCTIONS) and self._accept("("):
            selector = _FUNCTIONS.get(name) or HasLabel(self._label("a label"))
            self._expect(")", "')'")
            return selector
        operator = self._operator()
        if isinstance(operator, ComparisonOperator):
            return LabelComparison(label=name, operator=operator, literal=self._literal("a literal in quotes"))
        return SetMembership(label=name, operator=operator, literals=self._set())

    def _operator(self) -> ComparisonOperator | SetOperator:
        first = self._text
        if second := _SECOND_WORDS.get(first):
            self._advance()
            self._expect(second, f"{second!r} after {first!r}")
            return _OPERATORS[first + second]
        operator = _OPERATORS.get(first)
        if operator is None:
            raise self._error("'==', '!=', 'contains', 'starts with', 'ends with', 'in' or 'not in'")
        self._advance()
        return operator

    def _set(self) -> frozenset[str]:
        self._expect("{", "'{'")
        literals = set[str]()
        while not self._accept("}"):
            literals.add(self._literal("a literal in quotes or '}'"))
            if self._text != "}":
                self._expect(",", "',' or '}'")
        return frozenset(literals)

    def _literal(self, expected: str) -> str:
        if self._kind != "literal":
            raise self._error(expected)
        quoted = self._text
        self._advance()
        return quoted[1:-1]


# --- evaluation ------------------------------------------------------------------------------------------------------


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


# --- requirements ----------------------------------------------------------------------------------------------------


# What only the language of pools has: quotes, sets in braces, "&&" and "||", and its functions.
_POOL_LANGUAGE: Final = re.compile(r"""["'{}&|]|(?<![A-Za-z0-9_./-])(?:has|all|global)[ \t]*\(""")

# Every position of every text matches, as in the other grammar.
_REQUIREMENT_TOKEN: Final = re.compile(
    r"[ \t]*(?:(?P<word>[A-Za-z0-9_./-]+)|(?P<sign>==|!=|[=!(),])|(?P<end>\Z)|(?P<unknown>.))", re.DOTALL
)
_REQUIREMENT_COMPARISONS: Final = {
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
    return parse(text) if _POOL_LANGUAGE.search(text) else _RequirementParser(text, _REQUIREMENT_TOKEN).parse()


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
        if word in _REQUIREMENT_COMPARISONS:
            self._advance()
            return LabelComparison(label=label, operator=_REQUIREMENT_COMPARISONS[word], literal=self._value("a value"))
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
