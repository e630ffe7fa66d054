"""Network configurations: every member that is refused is found in one run, and no secret is shown."""

import pytest

from netplug_core.cni.dispatch import Plugin
from netplug_core.lint.configurations import Configuration, find_file_order, read_configurations
from netplug_core.lint.documents import Document
from netplug_core.lint.rules import Finding, Repair, Rule


def document(*plugins: object, file: str = "", **more: object) -> Document:
    mapping = {"cniVersion": "1.0.0", "name": "pods", "plugins": list(plugins), **more}
    return Document(source=f"{file or 'a.conflist'}#1", mapping=mapping, file=file)


def netplug(ipam: object = None, **more: object) -> dict[str, object]:
    return {"type": "netplug", "datastore_type": "sqlite", "ipam": ipam or {"type": "netplug-ipam"}, **more}


def found_in(*plugins: object, **more: str) -> tuple[Finding, ...]:
    return read_configurations(document(*plugins, **more))[1]


def test_every_member_that_is_refused_is_found() -> None:
    ipam = {"type": "netplug-ipam", "ipv4_pools": ["a", 7], "assign_ipv6": True}
    found = found_in(netplug(ipam, mtu=-1, readiness_gates=["http://a", "b"], log_level="LOUD"))
    assert {(one.rule, one.field) for one in found} == {
        (Rule.VALUE_REFUSED, "plugins[0].mtu"),
        (Rule.VALUE_REFUSED, "plugins[0].readiness_gates[1]"),
        (Rule.VALUE_REFUSED, "plugins[0].log_level"),
        (Rule.WRONG_TYPE, "plugins[0].ipam.ipv4_pools[1]"),
        (Rule.WRONG_TYPE, "plugins[0].ipam.assign_ipv6"),
    }


def test_a_value_of_another_type_is_converted_only_if_that_is_accepted() -> None:
    def repair_of(**more: object) -> Repair | None:
        (one,) = found_in(netplug(**more))
        assert one.rule is Rule.WRONG_TYPE
        return one.repair

    assert repair_of(mtu="1450") == Repair(("plugins", 0, "mtu"), 1450)
    assert repair_of(nodename=7) == Repair(("plugins", 0, "nodename"), "7")
    assert repair_of(require_mtu_file="true") == Repair(path=("plugins", 0, "require_mtu_file"), value=True)
    assert repair_of(mtu="large") is None
    assert repair_of(mtu=[1450]) is None
    assert repair_of(mtu="99999") is None  # too large


@pytest.mark.parametrize("key", [True, 8080, None, 1.5])
@pytest.mark.parametrize("datastore", ["sqlite", "etcdv3"])
def test_a_key_that_is_no_text_is_unknown(key: str, datastore: str) -> None:
    ipam = {"type": "netplug-ipam", key: "x"}
    found = found_in(netplug(ipam, mtu=-1, readiness_gates=[{key: 1}], datastore_type=datastore) | {key: 1})
    assert {(one.rule, one.field) for one in found} == {
        (Rule.VALUE_REFUSED, "plugins[0].mtu"),
        (Rule.WRONG_TYPE, "plugins[0].readiness_gates[0]"),
        (Rule.UNKNOWN_KEY, f"plugins[0].{key}"),
        (Rule.UNKNOWN_KEY, f"plugins[0].ipam.{key}"),
    }


def test_an_entry_whose_key_has_dots_hides_nothing_else() -> None:
    found = found_in(netplug(datastore_type="theirs", datastore_options={"a.b": 1}, mtu=-1))
    assert {(one.rule, one.field) for one in found} == {
        (Rule.WRONG_TYPE, "plugins[0].datastore_options['a.b']"),
        (Rule.VALUE_REFUSED, "plugins[0].mtu"),
    }


def test_no_text_of_a_wrong_type_is_shown() -> None:
    (one,) = found_in(netplug(policy="hunter2"))
    assert "hunter2" not in repr(one)
    (unknown,) = found_in(netplug(zebra="hunter2"))
    assert (unknown.rule, unknown.field) == (Rule.UNKNOWN_KEY, "plugins[0].zebra")
    assert "hunter2" not in repr(unknown)


def test_name_and_version_are_those_of_the_list() -> None:
    assert [one.field for one in found_in(netplug(), name="-")] == ["name"]
    assert [one.field for one in found_in(netplug(), cniVersion="7")] == ["cniVersion"]


def test_only_plugins_of_netplug_are_judged() -> None:
    ipam = {"type": "netplug-ipam", "datastore_type": "sqlite"}
    read, found = read_configurations(
        document({"type": "portmap"}, {"type": "bridge", "zebra": 1, "ipam": ipam}, netplug())
    )
    assert [(one.plugin, one.path) for one in read] == [(Plugin.IPAM, ("plugins", 1)), (Plugin.MAIN, ("plugins", 2))]
    assert all(one.netconf is not None for one in read)
    assert found == ()


def test_a_configuration_with_an_error_is_not_used_further() -> None:
    (one,), _found = read_configurations(document(netplug(mtu=-1)))
    assert one.netconf is None
    (one,), _found = read_configurations(document({"type": "netplug"}))
    assert one.netconf is None


def test_a_configuration_without_a_type_is_of_netplug() -> None:
    single = Document(source="a", mapping={"name": "pods", "cniVersion": "1.0.0", "ipam": {"type": "netplug-ipam"}})
    read, found = read_configurations(single)
    assert [one.subject for one in read] == ["network pods"]
    assert [(one.rule, one.field) for one in found] == [(Rule.VALUE_REFUSED, "type")]


def test_ranges_are_kept_for_comparison() -> None:
    (one,), found = read_configurations(document(netplug({"type": "host-local", "subnet": "10.22.0.0/24"})))
    assert (found, [str(ranges) for ranges in one.range_sets]) == ((), ["10.22.0.1-10.22.0.254"])


def test_the_first_file_of_each_folder_counts() -> None:
    bridge = {"type": "bridge"}
    files = [
        document(bridge, file="/a/05-bridge.conflist"),
        document(netplug(), file="/a/10-netplug.conflist"),
        document(netplug(), file="/b/10-netplug.conflist"),
        document(bridge, file="/b/20-bridge.conflist"),
        document(bridge, file="/c/05-bridge.conflist"),
        document(bridge, file="/c/06-bridge.conflist"),
        document(netplug(), file="/a/00-netplug.yaml"),
        document(netplug(), file=""),
    ]
    assert [one.source for one in find_file_order(files)] == ["/a/10-netplug.conflist#1"]


def test_a_configuration_without_a_name() -> None:
    one = Configuration(document=document(), plugin=Plugin.MAIN, members={})
    assert one.subject == "network -"
    assert one.path_of(("name",)) == ("name",)


@pytest.mark.parametrize(
    "file, more, found",
    [
        ("a.conflist", {}, []),
        ("", {}, []),
        ("a.conflist", {"name": ""}, ["name"]),
        ("a.conflist", {"name": None}, ["name"]),
        ("a.conf", {}, ["file name"]),
        ("a.json", {"name": None}, ["name", "file name"]),
    ],
)
def test_a_list_is_judged_as_runtimes_judge_its_file(file: str, more: dict[str, object], found: list[str]) -> None:
    problems = read_configurations(document(netplug(name="own"), file=file, **more))[1]
    assert [one.field for one in problems if one.rule is Rule.LIST_MALFORMED] == found


@pytest.mark.parametrize("file, count", [("a.conflist", 1), ("a.conf", 0), ("a.json", 0), ("", 0)])
def test_a_single_plugin_is_no_list(file: str, count: int) -> None:
    one = Document(source="a#1", mapping={"cniVersion": "1.0.0", "name": "pods", **netplug()}, file=file)
    found = [finding for finding in read_configurations(one)[1] if finding.rule is Rule.LIST_MALFORMED]
    assert [(finding.field, finding.value) for finding in found] == [("file name", ".conflist")] * count


@pytest.mark.parametrize("urls", ["nonsense", "http://a:2379,ftp://b", "http://u:p@a:2379"])
def test_endpoints_that_the_backend_refuses_are_found(urls: str) -> None:
    found = found_in({**netplug(etcd_endpoints=urls), "datastore_type": "etcdv3"})
    assert [(one.rule, one.field) for one in found] == [(Rule.VALUE_REFUSED, "plugins[0].etcd_endpoints")]
    assert "u:p" not in str(found[0].value)


@pytest.mark.parametrize("keys", [{"etcd_endpoints": "http://a:2379"}, {"etcd_discovery_srv": "example.com"}, {}])
def test_endpoints_that_the_backend_takes_are_not(keys: dict[str, str]) -> None:
    assert found_in({**netplug(**keys), "datastore_type": "etcdv3"}) == ()


def test_a_placeholder_is_one_finding_and_shows_only_itself() -> None:
    found = found_in({**netplug(etcd_endpoints="http://__HOST__:2379"), "datastore_type": "etcdv3"})
    assert [(one.rule, one.value) for one in found] == [(Rule.PLACEHOLDER, "__HOST__")]


def test_policy_without_the_guard_is_found() -> None:
    policy: dict[str, object] = {"policy": {"type": "k8s"}, "kubernetes": {"kubeconfig": "/k"}}
    (one,) = found_in(netplug(**policy))
    assert (one.rule, one.field) == (Rule.POLICY_UNGUARDED, "plugins[0].policy_guard")
    assert found_in(netplug(**policy, policy_guard=True)) == ()
