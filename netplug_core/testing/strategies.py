"""Hypothesis strategies for the values everything is made of, both families mixed.

Property tests draw from here, so that a corner one of them found is a corner for all of them.
"""

from __future__ import annotations

from hypothesis import strategies as st

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.records import Revision
from netplug_core.resources.metadata import Labels

__all__ = ["addresses", "families", "label_sets", "labels", "names", "prefixes", "revisions", "selectors"]

# Few of each, so that selectors and label sets drawn apart meet often; keywords and both quotes are among them.
_LABELS = ("a", "b", "in", "has", "all", "not", "contains", "zone.example/rack-1", "9_x")
_VALUES = ("", "a", "ab", "b", "zone", "all()", "&& (", "it's", '"', "é\n")
_OPERATORS = (
    "==", " == ", "!=", "\t!= ", " contains ", " starts with", "\tstartswith", " starts\t with ", " ends with",
    " endswith",
)  # fmt: skip
_SET_OPERATORS = (" in", " in ", " not in ", " notin", "\tnot  in\t")

_LABEL_EDGE = "abcdefghijklmnopqrstuvwxyz0123456789"


def families() -> st.SearchStrategy[Family]:
    """IPv4 or IPv6."""
    return st.sampled_from(Family)


def addresses(family: Family | None = None) -> st.SearchStrategy[Address]:
    """Any address, of one family or of both; never one that is IPv4 in IPv6's spelling."""
    chosen = families() if family is None else st.just(family)
    return chosen.flatmap(_addresses_of)


@st.composite
def prefixes(draw: st.DrawFn, *, family: Family | None = None, shortest: int = 0, longest: int | None = None) -> Prefix:
    """Any prefix without host bits; ``shortest`` and ``longest`` bound its length."""
    address = draw(addresses(family))
    width = address.family.width
    return Prefix.at(address, draw(st.integers(shortest, width if longest is None else min(longest, width))))


def names(*, longest: int = 63) -> st.SearchStrategy[str]:
    """Names as resources have them: lower-case letters, digits, dashes and dots between them (RFC 1123)."""
    part = st.text(alphabet=_LABEL_EDGE + "-", min_size=1, max_size=min(longest, 63)).filter(_has_good_edges)
    dotted = st.lists(part, min_size=1, max_size=3).map(".".join)
    return dotted.filter(lambda name: len(name) <= longest)


def labels() -> st.SearchStrategy[Labels]:
    """A few labels, sorted by key; keys with and without a domain, values empty now and then."""
    keys = st.one_of(names(longest=20), st.builds("{}/{}".format, names(longest=20), names(longest=20)))
    values = st.one_of(st.just(""), names(longest=20))
    return st.dictionaries(keys, values, max_size=4).map(lambda pairs: tuple(sorted(pairs.items())))


def label_sets() -> st.SearchStrategy[dict[str, str]]:
    """Labels of an object that ``selectors`` speak about, as a selector is held against them."""
    return st.dictionaries(st.sampled_from(_LABELS), st.sampled_from(_VALUES), max_size=5)


def selectors() -> st.SearchStrategy[str]:
    """Texts of selectors in every spelling: spaced or not, needlessly grouped, negated more than once."""
    return st.one_of(st.sampled_from(["", " \t"]), st.recursive(_selector_terms(), _joined_selectors, max_leaves=8))


def revisions() -> st.SearchStrategy[Revision]:
    """Revisions as stores make them: numbers, resource versions, uid and version together."""
    return st.one_of(
        st.integers(1, 2**63 - 1).map(str),
        st.builds("{}/{}".format, st.uuids(), st.integers(1, 2**63 - 1)),
    ).map(Revision)


def _addresses_of(family: Family) -> st.SearchStrategy[Address]:
    last = (1 << family.width) - 1
    # Both ends of the family are where arithmetic goes wrong, so they come up more often than chance has them.
    values = st.one_of(st.integers(0, last), st.integers(0, 300), st.integers(last - 300, last))
    drawn = values.map(lambda value: Address(family, value))
    return drawn.filter(lambda address: Address.parse(str(address)) == address)


def _has_good_edges(text: str) -> bool:
    return not text.startswith("-") and not text.endswith("-")


def _selector_terms() -> st.SearchStrategy[str]:
    label, gap = st.sampled_from(_LABELS), _gaps()
    literal = st.one_of(st.sampled_from(_VALUES), st.text(max_size=4)).flatmap(_quoted)
    listed = st.builds(_set_of, st.lists(literal, max_size=3), gap, st.sampled_from(["", ","]))
    return st.one_of(
        st.builds("{}({})".format, st.sampled_from(["all", "global ", " all"]), gap),
        st.builds("has{}({}{}{})".format, gap, gap, label, gap),
        st.builds("{}{}{}{}".format, label, st.sampled_from(_OPERATORS), gap, literal),
        st.builds("{}{}{}".format, label, st.sampled_from(_SET_OPERATORS), listed),
    )


def _joined_selectors(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    gap = _gaps()
    return st.one_of(
        st.builds("{}({}{})".format, gap, inner, gap),
        st.builds("!{}{}".format, gap, inner),
        st.builds("{}{}&&{}{}".format, inner, gap, gap, inner),
        st.builds("{}{}||{}{}".format, inner, gap, gap, inner),
    )


def _set_of(literals: list[str], gap: str, last: str) -> str:
    return f"{{{gap}{f'{gap},{gap}'.join(literals)}{gap}{last if literals else ''}{gap}}}"


def _gaps() -> st.SearchStrategy[str]:
    return st.sampled_from(["", " ", "\t", "  "])


def _quoted(literal: str) -> st.SearchStrategy[str]:
    able = [quote for quote in "\"'" if quote not in literal]
    return st.sampled_from([f"{quote}{literal}{quote}" for quote in able]) if able else st.just("''")
