"""The configuration of the plugin on one node: a template whose placeholders are filled in by the installer.

A placeholder such as ``__CNI_MTU__`` stands inside of a JSON string, where its value is escaped, or by itself, where
its value has to be a number or a boolean.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from attrs import field, frozen

from netplug_core.errors import ConfigurationError
from netplug_core.installation.installer_settings import CERTIFICATES, InstallerSettings
from netplug_core.installation.kubeconfig import FILE_NAME

__all__ = ["BUILT_IN", "Conflist", "HostFacts", "fill_conflist", "is_ours", "require_filled"]

BUILT_IN: Final = "the built-in template"
"""The name of the template that is used without another one."""

_NAME: Final = r"__([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*)__"
_PLACEHOLDER: Final = re.compile(_NAME, re.ASCII)
_STRING_OR_PLACEHOLDER: Final = re.compile(rf'"(?:[^"\\]|\\.)*"|{_NAME}', re.ASCII | re.DOTALL)
_LITERAL: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false", re.ASCII)
_VARIABLE: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}", re.ASCII)  # of a shell or envsubst
_OUR_TYPE: Final = re.compile(r'"type"\s*:\s*"netplug(?:-ipam)?"')

_NODE_NAME: Final = "KUBERNETES_NODE_NAME"
_CERTIFICATE_NAMES: Final[Mapping[str, str]] = dict(
    zip(("ETCD_CA_CERT_FILE", "ETCD_CERT_FILE", "ETCD_KEY_FILE"), CERTIFICATES, strict=True)
)


@frozen(kw_only=True)
class HostFacts:
    """What is known of the machine and the container besides the settings.

    ``certificates`` are the names of those that are mounted. ``token`` is the one of the pod; empty outside a pod.
    """

    host_name: str
    certificates: frozenset[str] = frozenset()
    token: str = field(default="", repr=False)


@frozen(kw_only=True)
class Conflist:
    """The text for the node. ``unknown`` are placeholders of any form that stand in it, since they have no value."""

    text: str = field(repr=False)
    unknown: tuple[str, ...]


def fill_conflist(template: str, source: str, settings: InstallerSettings, facts: HostFacts) -> Conflist:
    """A template, or the built-in one if it is empty, with the values of this node. ``source`` names it in errors.

    Raises:
        ConfigurationError: a value does not fit its place, or the result is no configuration with our plugin. The
            text is never shown: it may have secrets.
    """
    values = _values(settings, facts)
    unknown: dict[str, None] = {}

    def value_of(found: re.Match[str]) -> str | None:
        if found[1] not in values:
            unknown[f"__{found[1]}__"] = None
            return None
        return _value(found[1], values)

    def fill_string(found: re.Match[str]) -> str:
        value = value_of(found)
        return found[0] if value is None else json.dumps(value, ensure_ascii=False)[1:-1]

    def fill(found: re.Match[str]) -> str:
        if found[0].startswith('"'):
            unknown.update(dict.fromkeys(_VARIABLE.findall(found[0])))
            return _PLACEHOLDER.sub(fill_string, found[0])
        value = value_of(found)
        if value is not None and not _LITERAL.fullmatch(value):
            raise ConfigurationError(found[1], value, f"{source} uses it as a number, or as true or false")
        return found[0] if value is None else value

    text = _STRING_OR_PLACEHOLDER.sub(fill, template or _built_in(values))
    _check(text, source)
    return Conflist(text=text, unknown=tuple(unknown))


def require_filled(conflist: Conflist, source: str) -> None:
    """Return if no placeholder is left: the plugin would take its name for a value, as for the name of every node.

    Raises:
        ConfigurationError: one is left.
    """
    if conflist.unknown:
        accepted = "it has no value: set a variable of the environment, or write the value into the template"
        raise ConfigurationError(source, ", ".join(conflist.unknown), accepted)


def is_ours(text: str) -> bool:
    """Whether the text of a configuration, perhaps a damaged one, has our plugin in it; others are never touched."""
    return _OUR_TYPE.search(text) is not None


def _values(settings: InstallerSettings, facts: HostFacts) -> dict[str, str]:
    """The value of every placeholder, by its name without the underscores around it."""
    certificates = {
        name: f"{settings.tls_dir}/{file}" if file in facts.certificates else ""
        for name, file in _CERTIFICATE_NAMES.items()
    }
    return {
        **settings.variables,
        **certificates,
        _NODE_NAME: settings.node_name or facts.host_name.lower(),
        "KUBECONFIG_FILEPATH": f"{settings.net_dir}/{FILE_NAME}",
        "SERVICEACCOUNT_TOKEN": facts.token,
    }


def _value(name: str, values: Mapping[str, str]) -> str:
    value = values[name]
    if name == _NODE_NAME and (value == "localhost" or value.startswith("localhost.")):
        raise ConfigurationError(_NODE_NAME, value, "every machine has this name; set it to the name of the node")
    return value


def _check(text: str, source: str) -> None:
    try:
        found: object = json.loads(text)
    except ValueError as error:
        # Its text has a place and never the content.
        raise ConfigurationError(source, "…", f"JSON is expected, with its placeholders filled in: {error}") from None
    except RecursionError:
        raise ConfigurationError(source, "…", "JSON is expected, and this is nested too deeply") from None
    if not isinstance(found, dict) or not is_ours(text):
        raise ConfigurationError(source, "…", 'a JSON object with a plugin of type "netplug" is expected')


def _built_in(values: Mapping[str, str]) -> str:
    """The list of ``netplug`` and ``portmap``, for either datastore."""
    names = _ETCD_NAMES if values["DATASTORE_TYPE"] == "etcdv3" else ()
    members = "".join(f'      "{name.lower()}": "__{name}__",\n' for name in names if values[name])
    return _BUILT_IN_TEXT.replace("      ETCD\n", members)


_ETCD_NAMES: Final = ("ETCD_ENDPOINTS", "ETCD_DISCOVERY_SRV", *_CERTIFICATE_NAMES)
_BUILT_IN_TEXT: Final = """{
  "name": "k8s-pod-network",
  "cniVersion": "1.0.0",
  "plugins": [
    {
      "type": "netplug",
      "log_level": "__LOG_LEVEL__",
      "log_file_path": "__LOG_FILE_PATH__",
      "log_file_max_size": __LOG_FILE_MAX_SIZE__,
      "log_file_max_age": __LOG_FILE_MAX_AGE__,
      "log_file_max_count": __LOG_FILE_MAX_COUNT__,
      "datastore_type": "__DATASTORE_TYPE__",
      ETCD
      "nodename": "__KUBERNETES_NODE_NAME__",
      "mtu": __CNI_MTU__,
      "ipam": {"type": "netplug-ipam"},
      "policy": {"type": "k8s"},
      "kubernetes": {"kubeconfig": "__KUBECONFIG_FILEPATH__"}
    },
    {"type": "portmap", "snat": true, "capabilities": {"portMappings": true}}
  ]
}
"""
