"""What the strategies promise to those who draw from them."""

import json
import string
from collections.abc import Callable

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.encoding.ipam import from_mapping, to_mapping
from netplug_core.ipam.allocation.request import AssignRequest
from netplug_core.ipam.model import AFFINITY, BLOCK, HANDLE, Affinity, Attribute, Block, Handle
from netplug_core.records import Kind
from netplug_core.resources.fields import Labels, Metadata
from netplug_core.resources.ippool import (
    IPAM_CONFIGURATION_KEY,
    IPAMConfiguration,
    IPAMConfigurationSpec,
    IPPool,
    IPReservation,
)
from netplug_core.resources.validation import validate_resource
from netplug_core.selectors import (
    And,
    Everything,
    HasLabel,
    LabelComparison,
    Not,
    Or,
    Selector,
    SetMembership,
    matches,
    parse,
)
from netplug_core.testing.strategies import (
    addresses,
    affinities,
    attributes,
    blocks,
    configurations,
    families,
    handles,
    label_sets,
    labels,
    names,
    owners,
    pools,
    prefixes,
    requests,
    reservations,
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


@pytest.mark.parametrize("form", [Everything, HasLabel, LabelComparison, SetMembership, Not, And, Or])
def test_selectors_can_be_read_and_come_in_every_form(form: type[Selector]) -> None:
    assert isinstance(parse(find(selectors(), lambda text: isinstance(parse(text), form), settings=ANY)), form)


@pytest.mark.parametrize("outcome", [True, False])
def test_selectors_and_label_sets_meet(*, outcome: bool) -> None:
    drawn = st.tuples(
        selectors().filter(lambda text: isinstance(parse(text), LabelComparison)), label_sets().filter(bool)
    )
    text, held = find(drawn, lambda pair: matches(parse(pair[0]), pair[1]) is outcome, settings=ANY)
    assert matches(parse(text), held) is outcome


@given(revisions())
def test_revisions_are_never_empty(revision: str) -> None:
    assert revision


@given(pools(), reservations(), configurations())
def test_resources_are_valid(pool: IPPool, reservation: IPReservation, settings: IPAMConfigurationSpec) -> None:
    validate_resource(pool)
    validate_resource(reservation)
    validate_resource(IPAMConfiguration(metadata=Metadata(name=IPAM_CONFIGURATION_KEY.name), spec=settings))
    assert pool.spec.prefix.length <= pool.spec.block_length


@given(blocks(), handles(), affinities())
def test_the_records_of_the_allocator_are_sound_and_can_be_stored(
    block: Block, handle: Handle, affinity: Affinity
) -> None:
    assert block.problem() == ""
    stored: tuple[tuple[Kind[object], object], ...] = ((BLOCK, block), (HANDLE, handle), (AFFINITY, affinity))
    for kind, value in stored:
        assert from_mapping(kind, json.loads(json.dumps(to_mapping(value)))) == value
    assert all(count > 0 for _block, count in handle.blocks)


STATES: dict[str, Callable[[Block], bool]] = {
    "full": lambda block: not block.free,
    "cooling": lambda block: block.cooling_count > 0,
    "kept back": lambda block: block.is_empty and block.used_count > 0,
    "nobody's": lambda block: not block.owner and block.used_count > 0,
    "shared": lambda block: len(block.attributes) > 1,
}


@pytest.mark.parametrize("is_so", STATES.values(), ids=STATES)
def test_blocks_come_in_every_state(is_so: Callable[[Block], bool]) -> None:
    assert is_so(find(blocks(), is_so, settings=ANY))


@given(attributes(), owners())
def test_attributes_are_in_use_and_owners_have_a_type(attribute: Attribute, owner: str) -> None:
    assert attribute.released_ns is None
    assert list(attribute.owner) == sorted(attribute.owner)
    assert owner == "" or owner.partition(":")[0] in {"host", "virtual"}


@given(requests())
def test_a_request_wants_one_thing_of_a_family(request: AssignRequest) -> None:
    wanted = [each.family for each in request.wanted]
    assert len(set(wanted)) == len(wanted) > 0
