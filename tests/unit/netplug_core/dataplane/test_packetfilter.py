"""What is said of changes by other programs."""

from attrs import define, field

from netplug_backends.memory.ruleset import MemoryRuleset
from netplug_core.dataplane.packetfilter import (
    REQUIREMENTS,
    DroppingChain,
    ForeignChange,
    ForeignChanges,
    find_missing,
)
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.ruleset import Hook, ObservedTable, ReplaceTable, TableChange


def test_changes_concern_the_tables_that_they_name() -> None:
    found = ForeignChanges(
        changes=(
            ForeignChange("nft", frozenset({"netplug", "filter"})),
            ForeignChange("kube-proxy", frozenset({"kube-proxy"})),
            ForeignChange("firewalld", frozenset({"netplug"})),
            ForeignChange("nft", frozenset({"netplug"})),
        )
    )
    assert found.concern("netplug")
    assert not found.concern("netplug_net")
    assert found.programs("netplug") == ("nft", "firewalld")
    assert found.programs("netplug_net") == ()


def test_what_was_lost_concerns_every_table() -> None:
    found = ForeignChanges(were_lost=True)
    assert found.concern("netplug")
    assert found.programs("netplug") == ()


@define
class OldKernel:
    """A kernel that tracks no connections for tables."""

    kernel: MemoryRuleset = field(factory=MemoryRuleset)

    def read(self, name: str) -> ObservedTable | None:
        return self.kernel.read(name)

    def apply(self, change: TableChange) -> None:
        if isinstance(change, ReplaceTable) and "TrackingState" in str(change):
            raise KernelError("programming the packet filter", "No such file or directory")
        self.kernel.apply(change)

    def count_packets(self, table: str, chain: str) -> int:
        return self.kernel.count_packets(table, chain)


def test_a_kernel_with_everything_lacks_nothing_and_keeps_nothing() -> None:
    kernel = MemoryRuleset()
    assert find_missing(kernel) == ()
    assert len(kernel.changes) == 2 * len(REQUIREMENTS)
    assert kernel.read("netplug_probe") is None


def test_what_a_kernel_lacks_is_named_by_its_option() -> None:
    old = OldKernel()
    (missing,) = find_missing(old)
    assert missing.requirement in REQUIREMENTS
    cause = "programming the packet filter: No such file or directory"
    assert str(missing) == f"known connections: the kernel lacks CONFIG_NFT_CT ({cause})"
    assert old.read("netplug_probe") is None


def test_a_chain_that_drops_is_named_with_a_remedy() -> None:
    found = DroppingChain(family="ip", table="filter", name="FORWARD", hook=Hook.FORWARD)
    assert str(found) == "the chain FORWARD of the table ip filter"
    assert found.remedy == "nft 'chain ip filter FORWARD { policy accept; }'"
