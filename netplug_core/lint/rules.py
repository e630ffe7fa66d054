"""The rules of ``netplugctl lint``, each with its identifier, and one place that breaks a rule."""

from __future__ import annotations

import enum

from attrs import frozen

from netplug_core.errors import excerpt, quote

__all__ = [
    "Finding", "Group", "Path", "Repair", "Rule", "Severity", "format_path",
]  # fmt: skip


# --- the rules --------------------------------------------------------------------------------------------------------


class Severity(enum.Enum):
    """Whether a call or a command would fail, or it would do something else than is usually meant."""

    ERROR = "error"
    WARNING = "warning"


class Group(enum.Enum):
    """What rules are about; the value is the first digit of their numbers, and the heading of their table."""

    DOCUMENTS = (0, "Documents")
    CONFIGURATIONS = (1, "Network configurations")
    RESOURCES = (2, "Pools and other resources")
    WORKLOADS = (3, "Annotations of pods and namespaces")
    NODES = (4, "Nodes")
    RANGES = (5, "Ranges beside those of services and hosts")
    INSTALLATIONS = (6, "Installations")
    POLICIES = (7, "Network policies")

    def __init__(self, digit: int, heading: str) -> None:
        self.digit = digit
        self.heading = heading


_E, _W = Severity.ERROR, Severity.WARNING


class Rule(enum.Enum):
    """Every rule: its number, its name, its severity, what breaks it, and what a person can do."""

    # fmt: off
    UNREADABLE = (1, "unreadable", _E,
        "the file cannot be read, or is neither YAML nor JSON (of `.conf` and `.conflist`: no JSON)",
        "correct the file")
    UNKNOWN_KIND = (2, "unknown-kind", _E, "an object of netplug's API group has a kind that netplug does not have",
        "correct the kind")
    UNKNOWN_FIELD = (3, "unknown-field", _E, "a resource has a field that its kind does not have",
        "correct the name or the place of the field")
    MALFORMED_FIELD = (4, "malformed-field", _E, "a field cannot be read as what it is", "correct the value")
    DUPLICATE_OBJECT = (5, "duplicate-object", _E,
        "two documents describe one object, and the later one replaces the other",
        "leave one of them out, or rename it")

    WRONG_TYPE = (101, "wrong-type", _E, "a key has another JSON type; every call fails with code 6",
        "write it as is expected")
    VALUE_REFUSED = (102, "value-refused", _E, "the value of a key is not accepted; every ADD fails with code 7",
        "change the value, see docs/configuration.md")
    KEY_MISPLACED = (103, "key-misplaced", _E, "a key is not for the configured IPAM, datastore or orchestrator",
        "leave it out, or configure what it is for")
    UNKNOWN_KEY = (104, "unknown-key", _W, "netplug has no such key; it is ignored", "correct the key, or leave it out")
    DEPRECATED_KEY = (105, "deprecated-key", _W, "a key is deprecated, and still works", "use the newer key")
    IGNORED_KEY = (106, "ignored-key", _W, "a key belongs to a datastore that is not the configured one; it is ignored",
        "leave it out, or set datastore_type")
    CNI_VERSION = (107, "cni-version", _E, "the cniVersion is not supported; every call fails with code 1",
        "set a version that is supported")
    LIST_MALFORMED = (108, "list-malformed", _E,
        "a configuration list is not as runtimes expect it: its name, its plugins, the ending of its file",
        "correct the list")
    FILE_ORDER = (109, "file-order", _W,
        "another file of the folder comes first, and containerd and CRI-O use the first one only",
        "rename one of the files, or remove the other")
    NO_FAMILY = (110, "no-family", _E, "no address family is on; every ADD fails with code 110",
        'set assign_ipv4 or assign_ipv6 to the string "true"')
    POOL_UNKNOWN = (111, "pool-unknown", _E,
        "a configuration names a pool that there is not; every ADD fails with code 101",
        "create the pool, or name it as it is called")
    POOL_UNUSABLE = (112, "pool-unusable", _E, "a configuration names a pool that gives no addresses to pods",
        "change the pool, or name another one")
    PLACEHOLDER = (113, "placeholder", _E,
        "a value still has a placeholder of a template, such as `__KUBERNETES_NODE_NAME__` or `${NODE}`",
        "fill in the template")
    POLICY_UNGUARDED = (114, "policy-unguarded", _W,
        "a configuration has the policy type k8s without policy_guard: pods are open until the node process has begun",
        "set policy_guard to true where the node process enforces policy")

    POOL_HOST_BITS = (201, "pool-host-bits", _E, "the CIDR of a pool has bits behind its prefix",
        "clear them; --fix does it")
    POOL_OVERLAP = (202, "pool-overlap", _E, "two pools have addresses in common", "give each pool a range of its own")
    POOL_BLOCK_SIZE = (203, "pool-block-size", _E, "the blockSize of a pool is not possible", "change the blockSize")
    POOL_CIDR = (204, "pool-cidr", _E, "the CIDR of a pool is too small, or has addresses that no pod can have",
        "choose another CIDR")
    POOL_ENCAPSULATION = (205, "pool-encapsulation", _E,
        "ipipMode and vxlanMode of a pool do not fit its family, its use or each other", "set one of them to Never")
    POOL_USES = (206, "pool-uses", _E, "the allowedUses of a pool exclude each other, or another field",
        "make one pool for each use")
    POOL_SELECTOR = (207, "pool-selector", _E, "a selector of a pool is not accepted", "correct the selector")
    POOL_LARGE_BLOCKS = (209, "pool-large-blocks", _W,
        "the blocks of a pool are so large that their records can outgrow the datastore", "choose a longer blockSize")
    POOL_WITHOUT_NODE = (210, "pool-without-node", _W, "no node has the labels that a pool selects",
        "label nodes, or change nodeSelector")
    POOL_WITHOUT_NAMESPACE = (211, "pool-without-namespace", _W, "no namespace has the labels that a pool selects",
        "label namespaces, or change namespaceSelector")
    POOL_FEW_BLOCKS = (212, "pool-few-blocks", _W,
        "a pool has fewer blocks than it selects nodes; the others can only borrow",
        "choose a longer blockSize, or a larger CIDR")
    POOL_CHANGE = (213, "pool-change", _E,
        "a pool is stored with another CIDR, blockSize or use, which cannot be changed",
        "make a new pool, and disable this one")
    RESERVATION_OUTSIDE = (214, "reservation-outside", _W, "a reservation has a range that no pool has an address of",
        "correct the range, or leave it out")
    POOL_RESERVED = (215, "pool-reserved", _W, "every address of a pool is reserved",
        "shrink the reservations, or remove the pool")
    METADATA = (216, "metadata", _E, "the name, a label or an annotation of a resource is not accepted", "change it")
    IPAM_CONFIGURATION = (217, "ipam-configuration", _E, "settings of the IPAMConfiguration do not fit each other",
        "change one of them")
    RESOURCE_VALUE = (218, "resource-value", _E, "a value of another resource is not accepted", "change the value")
    PROFILE_UNKNOWN = (219, "profile-unknown", _W,
        "a host endpoint names a profile that there is not, which denies everything that no policy decides",
        "create the profile, or name it as it is called")

    ANNOTATION_UNKNOWN = (301, "annotation-unknown", _E,
        "a pod has an annotation of netplug that does not exist; its ADD fails",
        "correct the name, see docs/annotations.md")
    ANNOTATION_POOLS = (302, "annotation-pools", _E, "ipv4pools or ipv6pools cannot be read", "correct the annotation")
    ANNOTATION_FAMILIES = (303, "annotation-families", _E, "ipFamilies cannot be read", "correct the annotation")
    ANNOTATION_ADDRESSES = (304, "annotation-addresses", _E, "ipAddrs or ipAddrsNoIpam cannot be read",
        "correct the annotation")
    ANNOTATION_FLOATING = (305, "annotation-floating", _E, "floatingIPs cannot be read", "correct the annotation")
    ANNOTATION_MAC = (306, "annotation-mac", _E, "hwAddr is no address of one interface", "correct the annotation")
    ANNOTATION_SOURCES = (307, "annotation-sources", _E, "allowedSourcePrefixes cannot be read",
        "correct the annotation")
    ANNOTATION_CONFLICT = (308, "annotation-conflict", _E, "a pod has two annotations that exclude each other",
        "leave one of them out")
    ANNOTATION_TYPE = (309, "annotation-type", _E, "an annotation is no text; the API server refuses the object",
        "write it as a text in quotes; --fix does it for lists and objects of texts")
    ANNOTATION_UNUSED = (310, "annotation-unused", _W, "a namespace has an annotation that only a pod can have",
        "move it to the pods")
    ANNOTATION_PLACE = (311, "annotation-place", _W,
        "an annotation is on a workload, and not on the template of its pods: it is ignored",
        "move it to the metadata of the template")
    ANNOTATION_PREFIX = (312, "annotation-prefix", _W,
        "an annotation has a name of netplug's and another prefix: it is ignored", "correct the prefix")
    FEATURE_OFF = (313, "feature-off", _E,
        "the network configuration does not allow an annotation; the pod's ADD fails",
        "turn the feature on in feature_control, or leave the annotation out")
    ANNOTATION_IPAM = (314, "annotation-ipam", _E,
        "an annotation needs the IPAM of netplug, and another one is configured", "leave the annotation out")
    ANNOTATION_POOL_UNKNOWN = (315, "annotation-pool-unknown", _E,
        "an annotation names a pool that there is not; the pod's ADD fails",
        "create the pool, or name it as it is called")
    ANNOTATION_POOL_UNUSABLE = (316, "annotation-pool-unusable", _E,
        "an annotation names a pool that gives no addresses to pods", "change the pool, or name another one")
    ADDRESS_OUTSIDE = (317, "address-outside", _E, "an annotation asks for an address of no pool that may serve",
        "ask for an address of an enabled pool")
    ADDRESS_SHARED = (318, "address-shared", _E, "several pods ask for one address, and only the first one gets it",
        "give each pod an address of its own")

    NODE_LABEL = (401, "node-label", _E, "a label of a node is not accepted", "correct the label")
    NODE_WITHOUT_POOL = (402, "node-without-pool", _E, "no pool selects a node; every ADD there fails with code 104",
        "label the node, change a selector, or add a pool")

    RANGE_OF_SERVICES = (501, "range-of-services", _E, "a range of pods overlaps the range of services",
        "choose another range for one of them")
    RANGE_OF_HOSTS = (502, "range-of-hosts", _E, "a range of pods overlaps the network of the hosts",
        "choose another range for pods")
    RANGE_ROUTED = (503, "range-routed", _W, "the host has a route to addresses of pods that is not netplug's",
        "choose another range for pods, or remove the route")
    SERVICES_IN_HOSTS = (504, "services-in-hosts", _E, "the range of services overlaps the network of the hosts",
        "choose another range for services")
    TWO_IPAMS = (505, "two-ipams", _E, "host-local and a pool assign the same addresses",
        "give each a range of its own")

    INSTALLATION_REQUIRED = (601, "installation-required", _E, "a field that is needed is missing", "set the field")
    INSTALLATION_FORMAT = (602, "installation-format", _E, "a field cannot be read", "correct the value")
    INSTALLATION_RANGE = (603, "installation-range", _E, "a number or a CIDR is outside its limits", "change the value")
    INSTALLATION_UNSUPPORTED = (604, "installation-unsupported", _E, "a field or one of its choices does not exist",
        "correct the name")
    INSTALLATION_INCOMPATIBLE = (605, "installation-incompatible", _E,
        "a setting does not fit the CNI plugin, its IPAM or the dataplane", "change one of them")
    INSTALLATION_DUPLICATE = (606, "installation-duplicate", _E, "a value is there twice", "leave one out")
    INSTALLATION_CONFLICT = (607, "installation-conflict", _E, "two fields contradict each other", "leave one out")
    INSTALLATION_WARNING = (608, "installation-warning", _W, "a setting is seldom meant as it is", "see the text")

    POLICY_SELECTS_NOTHING = (701, "policy-selects-nothing", _W,
        "a policy selects no pod and no host endpoint that is known", "correct the selector, or remove the policy")
    POLICY_OF_SERVICES = (702, "policy-of-services", _W,
        "a rule of a policy has addresses of services: it is never met, since policy sees the pod behind a service",
        "select the pods that the service leads to")
    POLICY_PORT_UNKNOWN = (703, "policy-port-unknown", _W,
        "a rule of a policy names a port that none of the pods has that it is for",
        "name a port of these pods, or write its number")
    # fmt: on

    def __init__(self, number: int, word: str, severity: Severity, meaning: str, next_step: str) -> None:
        self.number = number
        self.word = word
        self.severity = severity
        self.meaning = meaning
        self.next_step = next_step

    @property
    def identifier(self) -> str:
        """The identifier that people and programs search for."""
        return f"NP-L{self.number:03}"

    @property
    def group(self) -> Group:
        """What the rule is about."""
        return next(group for group in Group if group.digit == self.number // 100)


# --- one place --------------------------------------------------------------------------------------------------------


Path = tuple[str | int, ...]
"""The names and positions that lead to a member of a document."""


def format_path(path: Path) -> str:
    """A path as messages show it: ``plugins[0].ipam``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


@frozen
class Repair:
    """The value that a member of the document is given, so that the rule is not broken any more."""

    path: Path
    value: str | float


@frozen(kw_only=True)
class Finding:
    """What breaks a rule: ``field`` of ``subject`` in ``source`` has ``value``; ``accepted`` is what would do.

    ``source`` names the document, or the datastore. ``value`` is None if nothing is there, or if it is not shown.
    ``repair`` is None if it is not known for certain what was meant.
    """

    rule: Rule
    source: str
    subject: str
    field: str
    value: object
    accepted: str
    repair: Repair | None = None

    @property
    def shown_value(self) -> str:
        """The value as a message shows it."""
        if self.value is None:
            return "-"
        return excerpt(self.value) if isinstance(self.value, str) and self.value.isprintable() else quote(self.value)
