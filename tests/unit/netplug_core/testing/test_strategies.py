"""What the strategies promise to those who draw from them."""

import string

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.resources.metadata import Labels
from netplug_core.selectors.evaluate import matches
from netplug_core.selectors.grammar import Among, And, Compare, Everything, Has, Not, Or, Selector, parse
from netplug_core.testing.strategies import (
    addresses,
    families,
    label_sets,
    labels,
    names,
    prefixes,
    revisions,
    selectors,
)

EDGES = set(string.ascii_lowercase + string.digits)
ANY = settings(max_examples=2000, phases=[Phase.generate], database=None)  # the first found will do, however long


@given(addresses())
def test_addresses_survive_their_text(address: Address) -> None:
    assert Address.parse(str(address)) == address


@given(st.data(), families())
def test_a_family_can_be_asked_for(data: st.DataObject, family: Family) -> None:
    assert data.draw(addresses(family)).family is family
    assert data.draw(prefixes(family=family)).family is family


@given(prefixes(shortest=8, longest=26))
def test_prefixes_have_no_host_bits_and_a_length_within_bounds(prefix: Prefix) -> None:
    assert Prefix.at(prefix.first, prefix.length) == prefix
    assert 8 <= prefix.length <= 26


@pytest.mark.parametrize("family", Family)
def test_both_families_come_up_in_one_draw(family: Family) -> None:
    assert find(prefixes(), lambda prefix: prefix.family is family).family is family


@given(names(longest=20))
def test_names_are_those_of_rfc_1123(name: str) -> None:
    assert 1 <= len(name) <= 20
    assert set(name) <= EDGES | {"-", "."}
    assert all(part[0] in EDGES and part[-1] in EDGES for part in name.split("."))


@given(labels())
def test_labels_are_sorted_and_each_key_stands_once(drawn: Labels) -> None:
    keys = [key for key, _ in drawn]
    assert keys == sorted(set(keys))


@pytest.mark.parametrize("form", [Everything, Has, Compare, Among, Not, And, Or])
def test_selectors_can_be_read_and_come_in_every_form(form: type[Selector]) -> None:
    assert isinstance(parse(find(selectors(), lambda text: isinstance(parse(text), form), settings=ANY)), form)


@pytest.mark.parametrize("outcome", [True, False])
def test_selectors_and_label_sets_meet(*, outcome: bool) -> None:
    drawn = st.tuples(selectors().filter(lambda text: isinstance(parse(text), Compare)), label_sets().filter(bool))
    text, held = find(drawn, lambda pair: matches(parse(pair[0]), pair[1]) is outcome, settings=ANY)
    assert matches(parse(text), held) is outcome


@given(revisions())
def test_revisions_are_never_empty(revision: str) -> None:
    assert revision
