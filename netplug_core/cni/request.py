"""One CNI invocation as a value: the variables and standard input, checked.

``dispatch`` calls the three steps in the order that the protocol requires: :func:`parse_environment`,
:func:`decode_netconf`, :func:`make_request`. This module checks what every plugin shares: variables, CNI_ARGS,
JSON, ``name`` and ``cniVersion``. ``netconf`` reads every other key of the configuration.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NoReturn

from attrs import field, frozen

from netplug_core.addressing import Address
from netplug_core.cni.dispatch import CNICommand, negotiate_version, reported_version, require_command
from netplug_core.decoding.codecs import STRING
from netplug_core.decoding.tables import Decoder, Field, Table, cni_error
from netplug_core.errors import ConfigurationError, DecodeError, RequestError, excerpt, quote
from netplug_core.names import is_cni_name, orchestrator_of

__all__ = [
    "CNIArgs", "CNICommand", "CNIEnvironment", "CNIRequest", "decode_netconf", "make_request", "parse_environment",
]  # fmt: skip

_NETCONF = "network configuration"

_NAME_RULE = "letters, digits, '_', '.' and '-' are accepted, a letter or digit first"
_MAX_IFNAME_BYTES = 15
_NAMES_OF_SETTINGS = ("all", "default")
_KERNEL_SPACE = 0xA0  # to the kernel, which knows no UTF-8, this byte is white space

_ATTACHMENT_VARIABLES = ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH")
_REQUIRED_VARIABLES: Mapping[CNICommand, tuple[str, ...]] = {
    CNICommand.ADD: _ATTACHMENT_VARIABLES,
    CNICommand.CHECK: _ATTACHMENT_VARIABLES,
    CNICommand.DEL: ("CNI_CONTAINERID", "CNI_IFNAME", "CNI_PATH"),
    CNICommand.GC: ("CNI_PATH",),
    CNICommand.STATUS: ("CNI_PATH",),
    CNICommand.VERSION: (),
}

_TRUE_TEXTS = frozenset({"1", "true"})
_FALSE_TEXTS = frozenset({"0", "false"})


@frozen(kw_only=True)
class CNIArgs:
    """The arguments of CNI_ARGS: the known keys, and every pair as it was written.

    If a key is there twice, the last one counts. ``ignore_unknown`` is what the caller wrote; unknown keys are
    accepted in any case, because runtimes add their own. An empty text means not given. ``mac`` is as it was written:
    who makes no interface does not look at it.
    """

    address: Address | None = None
    mac: str = ""
    pod_namespace: str = ""
    pod_name: str = ""
    pod_infra_container_id: str = ""
    pod_uid: str = ""
    ignore_unknown: bool = False
    pairs: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> CNIArgs:
        """The arguments that ``K=V;K=V`` names; empty text names none.

        Raises:
            RequestError: a pair is not two parts around one ``=``, or a known key has an impossible value.
        """
        pairs = tuple(_parse_pair(item) for item in text.split(";")) if text else ()
        values = dict(pairs)
        return cls(
            address=_parse_address_argument(values.get("IP", "")),
            mac=values.get("MAC", ""),
            pod_namespace=values.get("K8S_POD_NAMESPACE", ""),
            pod_name=values.get("K8S_POD_NAME", ""),
            pod_infra_container_id=values.get("K8S_POD_INFRA_CONTAINER_ID", ""),
            pod_uid=values.get("K8S_POD_UID", ""),
            ignore_unknown=_parse_flag_argument("IgnoreUnknown", values.get("IgnoreUnknown", "0")),
            pairs=pairs,
        )

    @classmethod
    def parse_for_delete(cls, text: str) -> CNIArgs:
        """The arguments that a DEL uses: the pod's name and namespace. It fails because of none.

        A pair that :meth:`parse` would refuse is left out. The container that a runtime has to remove may have been
        attached by a call with other arguments, or not at all.
        """
        pairs = tuple(pair for item in text.split(";") if (pair := _find_acceptable_pair(item)) is not None)
        values = dict(pairs)
        return cls(
            pod_namespace=values.get("K8S_POD_NAMESPACE", ""), pod_name=values.get("K8S_POD_NAME", ""), pairs=pairs
        )


@frozen(kw_only=True)
class CNIEnvironment:
    """The CNI variables, checked; empty if the command does not use them.

    ``has_netns_override``: the caller allows a network namespace that is the plugin's own.
    """

    command: CNICommand
    container_id: str = ""
    netns: str = ""
    ifname: str = ""
    args: CNIArgs = CNIArgs()
    path: tuple[str, ...] = ()
    has_netns_override: bool = False


@frozen(kw_only=True)
class CNIRequest:
    """One call of a runtime: the command, the attachment and the network configuration.

    ``netconf_text`` is the configuration as it came, for delegates; ``netconf_mapping`` is the same text decoded.
    ``environ`` are all variables of the call, for delegates too. ``cni_version`` is the negotiated version,
    ``reported_version`` the one that answers carry. ``is_resumed``: another process began the call, and may have done a
    part of it or all. Text, mapping and variables are never shown: they may contain tokens.
    """

    command: CNICommand
    container_id: str
    netns: str
    ifname: str
    args: CNIArgs
    path: tuple[str, ...]
    has_netns_override: bool
    network: str
    cni_version: str
    reported_version: str
    netconf_text: str = field(repr=False)
    netconf_mapping: Mapping[str, object] = field(repr=False, eq=False)
    environ: Mapping[str, str] = field(factory=dict, repr=False, eq=False)
    is_resumed: bool = False

    @property
    def orchestrator(self) -> str:
        """Who schedules the workload: ``k8s`` when the call names a pod with its namespace, else ``cni``."""
        return orchestrator_of(pod_namespace=self.args.pod_namespace, pod=self.args.pod_name)


@frozen(kw_only=True)
class _Header:
    """The keys of a network configuration that every plugin has."""

    name: str = ""
    cni_version: str = ""


@cache
def _decoder() -> Decoder:
    fields = {"name": Field("name", STRING), "cni_version": Field("cniVersion", STRING)}
    return Decoder(cni_error, tables=(Table(cls=_Header, fields=fields),))


def parse_environment(environ: Mapping[str, str]) -> CNIEnvironment:
    """The CNI variables of a call, as far as its command uses them.

    Raises:
        RequestError: an unknown command; required variables are missing (one message names them all); or one
            of them is malformed.

    Source: CNI specification, "Parameters".
    """
    command = _parse_command(environ.get("CNI_COMMAND", ""))
    missing = [name for name in _REQUIRED_VARIABLES[command] if not environ.get(name)]
    if missing:
        _refuse_missing(missing)
    path = tuple(part for part in environ.get("CNI_PATH", "").split(":") if part)
    parse_args = CNIArgs.parse_for_delete if command is CNICommand.DEL else CNIArgs.parse
    if "CNI_CONTAINERID" not in _REQUIRED_VARIABLES[command]:
        return CNIEnvironment(command=command, path=path)
    return CNIEnvironment(
        command=command,
        container_id=_parse_container_id(environ["CNI_CONTAINERID"]),
        netns=environ.get("CNI_NETNS", ""),
        ifname=_parse_ifname(environ["CNI_IFNAME"], command),
        args=parse_args(environ.get("CNI_ARGS", "")),
        path=path,
        has_netns_override=environ.get("CNI_NETNS_OVERRIDE", "").lower() in _TRUE_TEXTS,
    )


def decode_netconf(text: str) -> Mapping[str, object]:
    """The JSON object that standard input holds.

    Raises:
        DecodeError: the text is empty, not strict JSON (a key twice and NaN are refused), or not an object.
    """
    if not text.strip():
        raise DecodeError("standard input", f"is empty; a {_NETCONF} is expected, as a JSON object")
    try:
        document: object = json.loads(text, object_pairs_hook=_refuse_duplicate_keys, parse_constant=_refuse_constant)
    except RecursionError:
        raise DecodeError(_NETCONF, "is nested too deeply") from None
    except ValueError as error:
        raise DecodeError(_NETCONF, f"is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise DecodeError(_NETCONF, "must be a JSON object")
    return document


def make_request(
    environment: CNIEnvironment,
    *,
    netconf_text: str,
    netconf_mapping: Mapping[str, object],
    environ: Mapping[str, str] | None = None,
    is_resumed: bool = False,
) -> CNIRequest:
    """The request that variables and configuration make together.

    Checked in this order: ``name``, ``cniVersion``, whether that version has the command.

    Raises:
        DecodeError: one of the two keys is no string.
        ConfigurationError: the name is missing or malformed.
        IncompatibleVersion: the version is not supported, or does not have the command.
    """
    header = _decoder().decode(netconf_mapping, _Header, _NETCONF)
    if not is_cni_name(header.name):
        raise ConfigurationError(f"{_NETCONF}.name", header.name, f"a name is required; {_NAME_RULE}")
    version = negotiate_version(header.cni_version)
    require_command(version, environment.command)
    return CNIRequest(
        command=environment.command,
        container_id=environment.container_id,
        netns=environment.netns,
        ifname=environment.ifname,
        args=environment.args,
        path=environment.path,
        has_netns_override=environment.has_netns_override,
        network=header.name,
        cni_version=version.text,
        reported_version=reported_version(header.cni_version),
        netconf_text=netconf_text,
        netconf_mapping=netconf_mapping,
        environ=environ or {},
        is_resumed=is_resumed,
    )


# --- JSON -------------------------------------------------------------------------------------------------------


def _refuse_duplicate_keys(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    members: dict[str, object] = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"the key {quote(key)} stands twice in one object")
        members[key] = value
    return members


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")


# --- variables ----------------------------------------------------------------------------------------------


def _parse_command(text: str) -> CNICommand:
    if not text:
        _refuse_missing(["CNI_COMMAND"])
    for command in CNICommand:
        if command.value == text:
            return command
    known = ", ".join(command.value for command in CNICommand)
    raise RequestError(f"unknown CNI_COMMAND: {excerpt(text)}; {known} are accepted")


def _refuse_missing(names: list[str]) -> NoReturn:
    raise RequestError(f"required env variables [{','.join(names)}] missing")


def _parse_container_id(text: str) -> str:
    if not is_cni_name(text):
        raise RequestError(f'CNI_CONTAINERID: "{excerpt(text)}" is not a container id; {_NAME_RULE}')
    return text


def _parse_ifname(text: str, command: CNICommand) -> str:
    # Bytes of the environment that are no UTF-8 arrive as surrogates; the kernel counts bytes.
    length = len(text.encode("utf-8", "surrogateescape"))
    is_bare = text.isprintable() and not any(c in "/:" or c.isspace() for c in text)
    if length > _MAX_IFNAME_BYTES or text in (".", "..") or not is_bare:
        raise RequestError(
            f'CNI_IFNAME: "{_escape_unprintable(text)}" is not an interface name; '
            f"1 to {_MAX_IFNAME_BYTES} bytes of printable UTF-8"
            ' without "/", ":" and white space are accepted, but not "." and ".."'
        )
    if command is CNICommand.ADD:
        _require_creatable(text)
    return text


def _require_creatable(ifname: str) -> None:
    """Refuse a name with which the kernel creates no interface, or one of another name: it replaces ``%d``.

    Other commands take it: there is no such interface, so DEL has to succeed.
    """
    if "%" in ifname or ifname in _NAMES_OF_SETTINGS or _KERNEL_SPACE in ifname.encode():
        raise RequestError(
            f'CNI_IFNAME: "{ifname}" is not a name that the kernel gives to an interface; names without "%" and without'
            ' the byte A0 are accepted, but not "all" and "default"'
        )


def _escape_unprintable(text: str) -> str:
    """A text of the environment as a message shows it: cut, and what cannot be printed is escaped."""
    return excerpt(text if text.isprintable() else text.encode("unicode_escape", "backslashreplace").decode())


# --- CNI_ARGS -----------------------------------------------------------------------------------------------


def _parse_pair(item: str) -> tuple[str, str]:
    key, separator, value = item.partition("=")
    if not separator or "=" in value or not item.isprintable():
        raise RequestError(
            f'ARGS: invalid pair "{_escape_unprintable(item)}"; '
            'KEY=VALUE in printable UTF-8 is accepted, pairs separated by ";"'
        )
    return key, value


def _find_acceptable_pair(item: str) -> tuple[str, str] | None:
    """The pair that a part of CNI_ARGS is; None if it cannot be accepted."""
    try:
        CNIArgs.parse(item)
        return _parse_pair(item)
    except RequestError:
        return None


def _parse_address_argument(text: str) -> Address | None:
    if not text:
        return None
    try:
        return Address.parse(text)
    except ValueError as error:
        raise RequestError(f"ARGS: IP: {error}; a bare IPv4 or IPv6 address is accepted") from None


def _parse_flag_argument(key: str, text: str) -> bool:
    lowered = text.lower()
    if lowered not in _TRUE_TEXTS | _FALSE_TEXTS:
        raise RequestError(f'ARGS: {key}: "{excerpt(text)}" is not accepted; 1, true, 0 and false are')
    return lowered in _TRUE_TEXTS
