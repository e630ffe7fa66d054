"""What an ADD says of a network configuration before it does anything."""

from __future__ import annotations

import json
from typing import cast

from jsonschema import Draft202012Validator

from netplug_core.cni.dispatch import Plugin
from netplug_core.cni.request import decode_netconf, make_request, parse_environment
from netplug_core.errors import NetplugError
from netplug_core.ipam.hostlocal.settings import load_settings
from netplug_core.netconf.model import HOST_LOCAL_IPAM, load

__all__ = ["find_refusal", "schema_problems"]

_ADD = {
    "CNI_COMMAND": "ADD",
    "CNI_CONTAINERID": "c1",
    "CNI_NETNS": "/run/netns/c1",
    "CNI_IFNAME": "eth0",
    "CNI_PATH": "/opt/cni/bin",
}


def find_refusal(config: object) -> NetplugError | None:
    """The error that a configuration is refused with; None if it is accepted."""
    text = json.dumps(config)
    try:
        mapping = decode_netconf(text)
        make_request(parse_environment(_ADD), netconf_text=text, netconf_mapping=mapping)
        netconf = load(mapping, Plugin.MAIN)
        if netconf.unsupported is None and netconf.ipam.type == HOST_LOCAL_IPAM:
            load_settings(netconf.own_keys)
    except NetplugError as error:
        return error
    return netconf.unsupported


def schema_problems(schema: Draft202012Validator, config: object) -> list[str]:
    """What a schema says is wrong with a configuration."""
    return [error.message for error in schema.iter_errors(cast("dict[str, str]", config))]
