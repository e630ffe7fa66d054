"""What is said of changes by other programs."""

from netplug_core.dataplane.packetfilter import ForeignChange, ForeignChanges


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
