"""Hypothesis strategies for addresses, names, labels, selectors, resources and the records of the allocator.

Both families are mixed. Resources are valid; blocks are in states that assignments and releases lead to. All property
tests draw from here, so that a corner case that one test needed is tried by all.
"""

from __future__ import annotations

from attrs import evolve
from hypothesis import strategies as st

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.errors import require_type
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, LinkLayer, Shortfall, Specific, Wanted
from netplug_core.ipam.model.block import Attribute, Block, Pairs
from netplug_core.ipam.model.handle import Affinity, AffinityState, Handle
from netplug_core.records import Revision
from netplug_core.resources.ipamconfiguration import IPAMConfigurationSpec
from netplug_core.resources.ippool import AllowedUse, AssignmentMode, IPPool, IPPoolSpec
from netplug_core.resources.ipreservation import IPReservation, IPReservationSpec
from netplug_core.resources.metadata import Labels, Metadata

__all__ = [
    "addresses", "affinities", "attributes", "blocks", "configurations", "families", "handles", "label_sets", "labels",
    "names", "owners", "pools", "prefixes", "requests", "reservations", "revisions", "selectors",
]  # fmt: skip

# Few of each, so that selectors and label sets drawn apart meet often; keywords and both quotes are among them.
_LABELS = ("a", "b", "in", "has", "all", "not", "contains", "zone.example/rack-1", "9_x")
_VALUES = ("", "a", "ab", "b", "zone", "all()", "&& (", "it's", '"', "é\n")
_OPERATORS = (
    "==", " == ", "!=", "\t!= ", " contains ", " starts with", "\tstartswith", " starts\t with ", " ends with",
    " endswith",
)  # fmt: skip
_SET_OPERATORS = (" in", " in ", " not in ", " notin", "\tnot  in\t")

_SECOND_NS = 1_000_000_000
_SELECTOR_LENGTH = 1024
_NOT_FOR_POOLS = tuple(
    Prefix.parse(text)
    for text in (
        *("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4"),
        *("::/128", "::1/128", "fe80::/10", "ff00::/8"),
    )
)
# All of Unicode would make Hypothesis build a table of it, which takes seconds and fails its health check.
_LITERAL_CHARACTERS = "".join(map(chr, range(128))) + "\x85\xa0éßİ\u0301\u2028中\ufeff\uffff😀\U0010ffff"
_LABEL_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


def families() -> st.SearchStrategy[Family]:
    """IPv4 or IPv6."""
    return st.sampled_from(Family)


def addresses(family: Family | None = None) -> st.SearchStrategy[Address]:
    """Any address, of one family or of both; no IPv4-mapped IPv6 address."""
    require_type("family", family, Family | None, "Family.IPV4, Family.IPV6 or None is expected")
    chosen = families() if family is None else st.just(family)
    return chosen.flatmap(_addresses_of)


@st.composite
def prefixes(draw: st.DrawFn, *, family: Family | None = None, shortest: int = 0, longest: int | None = None) -> Prefix:
    """Any prefix without host bits; ``shortest`` and ``longest`` bound its length."""
    address = draw(addresses(family))
    width = address.family.width
    return Prefix.at(address, draw(st.integers(shortest, width if longest is None else min(longest, width))))


def names(*, longest: int = 63) -> st.SearchStrategy[str]:
    """Names of resources: lower-case letters and digits, with dashes and dots between them (RFC 1123)."""
    part = st.text(alphabet=_LABEL_CHARACTERS + "-", min_size=1, max_size=min(longest, 63)).filter(
        _has_alphanumeric_edges
    )
    dotted = st.lists(part, min_size=1, max_size=3).map(".".join)
    return dotted.filter(lambda name: len(name) <= longest)


def labels() -> st.SearchStrategy[Labels]:
    """A few labels, sorted by key; keys with and without a domain, some values empty."""
    keys = st.one_of(names(longest=20), st.builds("{}/{}".format, names(longest=20), names(longest=20)))
    values = st.one_of(st.just(""), names(longest=20))
    return st.dictionaries(keys, values, max_size=4).map(lambda pairs: tuple(sorted(pairs.items())))


def label_sets() -> st.SearchStrategy[dict[str, str]]:
    """Labels of an object, with the keys and values that ``selectors`` uses."""
    return st.dictionaries(st.sampled_from(_LABELS), st.sampled_from(_VALUES), max_size=5)


def selectors() -> st.SearchStrategy[str]:
    """Texts of selectors in every spelling: with and without blanks and parentheses, negated more than once."""
    return st.one_of(st.sampled_from(["", " \t"]), st.recursive(_selector_terms(), _joined_selectors, max_leaves=8))


def revisions() -> st.SearchStrategy[Revision]:
    """Revisions as stores make them: a number, or a uid and a number."""
    return st.one_of(
        st.integers(1, 2**63 - 1).map(str),
        st.builds("{}/{}".format, st.uuids(), st.integers(1, 2**63 - 1)),
    ).map(Revision)


# --- resources --------------------------------------------------------------------------------------------------------


@st.composite
def pools(draw: st.DrawFn) -> IPPool:
    """Pools of any size, use and selection, without encapsulation."""
    family = draw(families())
    shortest, longest = family.block_lengths
    length = draw(st.integers(shortest, longest))
    prefix = draw(prefixes(family=family, shortest=8, longest=length).filter(_is_for_pools))
    uses = draw(
        st.sampled_from([(AllowedUse.WORKLOAD,), (AllowedUse.TUNNEL,), (AllowedUse.WORKLOAD, AllowedUse.TUNNEL)])
    )
    spec = IPPoolSpec(
        prefix=prefix,
        block_length=length,
        is_disabled=draw(st.booleans()),
        allowed_uses=uses,
        node_selector=draw(st.just("all()") | _pool_selectors()),
        namespace_selector="" if AllowedUse.TUNNEL in uses else draw(st.just("") | _pool_selectors()),
        assignment_mode=draw(st.sampled_from(AssignmentMode)),
    )
    return IPPool(metadata=Metadata(name=draw(names()), labels=draw(labels())), spec=spec)


def reservations() -> st.SearchStrategy[IPReservation]:
    """Up to four reserved prefixes, also single addresses, which may overlap."""
    spec = st.builds(IPReservationSpec, reserved=st.lists(prefixes(shortest=8), max_size=4).map(tuple))
    return st.builds(IPReservation, metadata=st.builds(Metadata, name=names()), spec=spec)


def configurations() -> st.SearchStrategy[IPAMConfigurationSpec]:
    """Every combination of settings that may be stored."""
    loose = st.builds(IPAMConfigurationSpec, cooldown_s=st.integers(0, 3600))
    strict = st.builds(
        IPAMConfigurationSpec,
        is_affinity_strict=st.just(value=True),
        may_auto_allocate_blocks=st.booleans(),
        max_blocks_per_host=st.integers(0, 40),
        cooldown_s=st.integers(0, 3600),
    )
    return loose | strict


# --- records of the allocator -----------------------------------------------------------------------------------------


def owners() -> st.SearchStrategy[str]:
    """The owner of a block as blocks name it: a node, another owner, or an empty text."""
    return st.one_of(names().map("host:{}".format), names().map("virtual:{}".format), st.just(""))


def attributes() -> st.SearchStrategy[Attribute]:
    """The attribute of an allocated address; never the one of an address in cooldown."""
    return st.builds(
        Attribute,
        handle=st.none() | names(longest=20),
        owner=_owner_attributes(),
        alternate=st.just(()) | _owner_attributes(),
    )


@st.composite
def blocks(draw: st.DrawFn, *, family: Family | None = None, max_size_bits: int = 4) -> Block:
    """A block of up to 2 ** ``max_size_bits`` addresses after assignments, releases, cooldowns and changes of owner."""
    prefix = draw(prefixes(family=family))
    size = draw(st.integers(0, max_size_bits))
    prefix = Prefix.at(prefix.first, prefix.family.width - size)
    kept_back = draw(st.sampled_from([(0, 0), (0, 0), (1, 0), (1, 1)])) if size > 1 else (0, 0)
    now_ns = draw(st.integers(0, 2**33)) * _SECOND_NS  # to the year 2242
    block = Block.new(prefix, owner=draw(owners()), now_ns=now_ns, host_reserved=kept_back)
    for _ in range(draw(st.integers(0, 8))):
        now_ns += draw(st.integers(0, 10)) * _SECOND_NS
        block = draw(_changed_block(block, now_ns))
    return block


@st.composite
def _changed_block(draw: st.DrawFn, block: Block, now_ns: int) -> Block:
    """The block after one more write."""
    held = [allocation.ordinal for allocation in block.held() if not allocation.is_cooling]
    match draw(st.sampled_from(["assign", "assign", "release", "cool", "collect", "claim", "relinquish", "touch"])):
        case "assign" if block.free:
            ordinals = block.find_free(draw(st.integers(1, len(block.free))), None)
            return block.assign(ordinals, draw(attributes()))
        case "release" | "cool" as how if held:
            going = draw(st.frozensets(st.sampled_from(held), min_size=1))
            return block.release(going, cooling_from_ns=now_ns if how == "cool" else None)
        case "collect":
            return block.expire_cooldown(now_ns, draw(st.integers(0, 10)) * _SECOND_NS)
        case "claim":
            return block.claimed(draw(owners().filter(bool)), now_ns)
        case "relinquish":
            return block.relinquished()
        case _:
            return block.touched()


def affinities() -> st.SearchStrategy[Affinity]:
    """An affinity in any of its states."""
    return st.builds(Affinity, state=st.sampled_from(AffinityState))


def handles() -> st.SearchStrategy[Handle]:
    """A handle with up to four blocks of both families, each with a count above zero."""
    counted = st.dictionaries(prefixes(shortest=20), st.integers(1, 2**40), max_size=4)
    return counted.map(lambda counts: Handle(blocks=tuple(sorted(counts.items()))))


@st.composite
def requests(draw: st.DrawFn) -> AssignRequest:
    """Any request: automatic, specific or nothing for each family."""
    wanted: list[Wanted] = []
    for family in draw(st.lists(families(), min_size=1, max_size=2, unique=True)):
        named = tuple(draw(st.lists(names(), max_size=2)))
        if draw(st.booleans()):
            wanted.append(Automatic(family=family, count=draw(st.integers(1, 300)), pools=named))
        else:
            wanted.append(Specific(address=draw(addresses(family)), pools=named))
    plain = AssignRequest(
        handle=draw(st.none() | names()), node=draw(names()), wanted=tuple(wanted), owner=draw(_owner_attributes())
    )
    return evolve(
        plain,
        use=draw(st.none() | st.sampled_from(AllowedUse)),
        link_layer=draw(st.sampled_from(LinkLayer)),
        shortfall=draw(st.sampled_from(Shortfall)),
        namespace_labels=draw(labels()),
        block_limit=draw(st.none() | st.integers(1, 30)),
        max_per_handle=draw(st.none() | st.integers(1, 5)),
        host_reserved=draw(st.sampled_from([(0, 0), (1, 0), (4, 1)])),
        affine_to=draw(st.sampled_from(["", "virtual:load-balancer"])),
    )


# --- parts ------------------------------------------------------------------------------------------------------------


def _owner_attributes() -> st.SearchStrategy[Pairs]:
    keys = st.sampled_from(["node", "pod", "namespace", "container", "interface", "network", "type", "service"])
    return st.dictionaries(keys, names(longest=20), max_size=4).map(lambda pairs: tuple(sorted(pairs.items())))


def _pool_selectors() -> st.SearchStrategy[str]:
    return selectors().filter(lambda text: "global" not in text and len(text) <= _SELECTOR_LENGTH)


def _is_for_pools(prefix: Prefix) -> bool:
    return not any(reserved.overlaps(prefix) for reserved in _NOT_FOR_POOLS)


def _addresses_of(family: Family) -> st.SearchStrategy[Address]:
    last = (1 << family.width) - 1
    # Arithmetic goes wrong at the ends of the family, so they are drawn more often.
    values = st.one_of(st.integers(0, last), st.integers(0, 300), st.integers(last - 300, last))
    drawn = values.map(lambda value: Address(family, value))
    return drawn.filter(lambda address: Address.parse(str(address)) == address)


def _has_alphanumeric_edges(text: str) -> bool:
    return not text.startswith("-") and not text.endswith("-")


def _selector_terms() -> st.SearchStrategy[str]:
    label, gap = st.sampled_from(_LABELS), _whitespace()
    literal = st.one_of(st.sampled_from(_VALUES), st.text(_LITERAL_CHARACTERS, max_size=4)).flatmap(_quoted)
    listed = st.builds(_set_of, st.lists(literal, max_size=3), gap, st.sampled_from(["", ","]))
    return st.one_of(
        st.builds("{}({})".format, st.sampled_from(["all", "global ", " all"]), gap),
        st.builds("has{}({}{}{})".format, gap, gap, label, gap),
        st.builds("{}{}{}{}".format, label, st.sampled_from(_OPERATORS), gap, literal),
        st.builds("{}{}{}".format, label, st.sampled_from(_SET_OPERATORS), listed),
    )


def _joined_selectors(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    gap = _whitespace()
    return st.one_of(
        st.builds("{}({}{})".format, gap, inner, gap),
        st.builds("!{}{}".format, gap, inner),
        st.builds("{}{}&&{}{}".format, inner, gap, gap, inner),
        st.builds("{}{}||{}{}".format, inner, gap, gap, inner),
    )


def _set_of(literals: list[str], gap: str, last: str) -> str:
    return f"{{{gap}{f'{gap},{gap}'.join(literals)}{gap}{last if literals else ''}{gap}}}"


def _whitespace() -> st.SearchStrategy[str]:
    return st.sampled_from(["", " ", "\t", "  "])


def _quoted(literal: str) -> st.SearchStrategy[str]:
    able = [quote for quote in "\"'" if quote not in literal]
    return st.sampled_from([f"{quote}{literal}{quote}" for quote in able]) if able else st.just("''")
