"""Hypothesis strategies for the values everything is made of, both families mixed.

Property tests draw from here, so that a corner one of them found is a corner for all of them.
"""

from __future__ import annotations

from hypothesis import strategies as st

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.records import Revision
from netplug_core.resources.metadata import Labels

__all__ = ["addresses", "families", "labels", "names", "prefixes", "revisions"]

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
