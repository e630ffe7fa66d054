"""Laws of the network configuration.

1. Whatever the JSON object is, it becomes a configuration or one of two errors of ours, in either role.
2. A teardown reads every configuration that a setup accepts, what it uses of it as the same values; beyond that, only
   a wrong JSON type, a relative path of its store or another plugin's configuration stops it. The keys of another
   store than the one named are not looked at, whatever they hold.
3. Null is absence, and unknown keys change nothing; only GC's list of attachments is empty if it is null.
4. Under another main plugin a key inside ``ipam`` means what it means at netplug's own top level, and what stands at
   that plugin's top level is ignored, but for the shared keys.
"""

from collections.abc import Mapping

from hypothesis import assume, given
from hypothesis import strategies as st

from netplug_core.cni.dispatch import Plugin
from netplug_core.errors import ConfigurationError, DecodeError
from netplug_core.netconf.model import LoadPurpose, NetConf, load
from netplug_core.settings.model import DatastoreSettings
from tests.harness.netconfs import GOOD, IPAM_KEYS, JUNK, LISTS, anything, configurations, objects

_KEYS_OF = {
    "etcdv3": ("etcd_endpoints", "etcd_discovery_srv", "etcd_authority", "etcd_scheme", "etcd_key_file"),
    "sqlite": ("sqlite_path",),
    "kubernetes": ("kubernetes", "netplug_api_group", "qps", "burst", "annotation_prefix", "policy"),
}


def accepted(config: Mapping[str, object], role: Plugin, purpose: LoadPurpose = LoadPurpose.SETUP) -> NetConf | None:
    """The configuration, None where it is refused; any other exception is a failure."""
    try:
        return load(config, role, purpose)
    except (ConfigurationError, DecodeError):
        return None


@given(anything(), st.sampled_from(Plugin), st.sampled_from(LoadPurpose))
def test_whatever_it_is_it_is_read_or_refused(config: dict[str, object], role: Plugin, purpose: LoadPurpose) -> None:
    netconf = accepted(config, role, purpose)
    if netconf is None:
        return
    assert netconf.num_queues >= 1
    assert 0 <= netconf.mtu <= 65535
    assert netconf.policy_setup_timeout_s >= 0
    assert netconf.policy_type in ("", "k8s")


def used(netconf: NetConf) -> tuple[object, ...]:
    names = (netconf.nodename, netconf.nodename_file, netconf.hostname, netconf.type, netconf.ipam.type)
    return (*names, reached(netconf.datastore), netconf.log, netconf.ipam_lock_file, netconf.release_record_dir)


def reached(settings: DatastoreSettings) -> tuple[object, ...]:
    """Which store it is, and what leads to it."""
    ways: Mapping[str, tuple[object, ...]] = {
        "etcdv3": (settings.etcd_endpoints, settings.etcd_discovery_srv, settings.etcd_key_file),
        "sqlite": (settings.sqlite_path,),
        "kubernetes": (
            *(settings.kubernetes, settings.api_group, settings.annotation_prefix),
            *(settings.qps, settings.burst),
        ),
    }
    return (settings.type, ways.get(settings.type, settings))


@given(configurations(), st.sampled_from(Plugin))
def test_a_teardown_reads_what_a_setup_reads(config: dict[str, object], role: Plugin) -> None:
    setup = accepted(config, role)
    assume(setup is not None)
    assert setup is not None
    assert used(load(config, role, LoadPurpose.TEARDOWN)) == used(setup)


@given(anything())
def test_only_wrong_types_stop_a_teardown(config: dict[str, object]) -> None:
    try:
        refused = load(config | {"type": "netplug"}, Plugin.MAIN, LoadPurpose.TEARDOWN).type != "netplug"
    except DecodeError:
        return
    except ConfigurationError:
        refused = True
    path = config.get("sqlite_path")
    is_nowhere = config.get("datastore_type") == "sqlite" and isinstance(path, str) and bool(path) and path[0] != "/"
    assert refused is is_nowhere


@given(configurations(), st.sampled_from(sorted(_KEYS_OF)), st.data())
def test_a_teardown_looks_at_one_store_only(config: dict[str, object], store: str, data: st.DataObject) -> None:
    config["datastore_type"] = store
    others = [key for other, keys in sorted(_KEYS_OF.items()) if other != store for key in keys]
    spoilt = data.draw(st.dictionaries(st.sampled_from(others), JUNK))
    torn = accepted(config, Plugin.MAIN, LoadPurpose.TEARDOWN)
    assert accepted(config | spoilt, Plugin.MAIN, LoadPurpose.TEARDOWN) == torn


@given(configurations(), st.dictionaries(st.text(min_size=1, max_size=5).map("x-{}".format), JUNK, max_size=3))
def test_unknown_keys_and_nulls_change_nothing(config: dict[str, object], unknown: dict[str, object]) -> None:
    nulls = {key: None for key in (*GOOD, *LISTS) if key not in config and not key.startswith("cni.dev/")}
    assert accepted({**config, **unknown, **nulls}, Plugin.MAIN) == accepted(config, Plugin.MAIN)


@given(objects(GOOD), objects(IPAM_KEYS))
def test_keys_inside_ipam_mean_the_same(keys: dict[str, object], ipam: dict[str, object]) -> None:
    ipam = {"type": "netplug-ipam"} | ipam
    own = accepted({"type": "netplug", "ipam": ipam} | keys, Plugin.MAIN)
    under_another = accepted({"type": "netplug", "ipam": ipam | keys}, Plugin.IPAM)
    assert under_another == own


@given(objects(GOOD))
def test_the_other_plugins_keys_are_its_own(keys: dict[str, object]) -> None:
    theirs = {key: value for key, value in keys.items() if key in _NOT_SHARED}
    config = {"type": "bridge", "ipam": {"type": "netplug-ipam"}}
    assert load(config | theirs, Plugin.IPAM) == load(config, Plugin.IPAM)


_NOT_SHARED = (
    "mtu",
    "qps",
    "burst",
    "num_queues",
    "policy",
    "kubernetes",
    "device_type",
    "readiness_gates",
    "mtu_file",
)
