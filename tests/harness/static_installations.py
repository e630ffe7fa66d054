"""The objects of a static manifest for tests, with the edits that people make."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

from netplug_core.installation.static import Method, render_static
from netplug_core.installation.static_settings import StaticObjects

__all__ = ["Edit", "conflist_edit", "setting", "static_objects", "variable"]

Edit = Callable[[dict[str, Any], dict[str, Any]], object]
"""Changes the DaemonSet and the ConfigMap."""


def static_objects(method: Method = Method.KDD, *edits: Edit) -> StaticObjects:
    """The objects as the API server has them, after some edits."""
    found = {str(one["kind"]): copy.deepcopy(dict(one)) for one in render_static(method, version="1.2.3")}
    daemonset, config_map = found["DaemonSet"], found["ConfigMap"]
    for edit in edits:
        edit(daemonset, config_map)
    return StaticObjects(daemonset=daemonset, config_map=config_map)


def variable(container: str, name: str, value: object) -> Edit:
    """Set a variable: a text, or where its value comes from; None removes it."""

    def edit(daemonset: dict[str, Any], _config_map: dict[str, Any]) -> None:
        pod = daemonset["spec"]["template"]["spec"]
        found = next(one for one in (*pod["initContainers"], *pod["containers"]) if one["name"] == container)
        found["env"] = [one for one in found["env"] if one["name"] != name]
        if value is not None:
            found["env"].append({"name": name, "valueFrom" if isinstance(value, Mapping) else "value": value})

    return edit


def setting(key: str, text: str) -> Edit:
    """Set a key of the ConfigMap."""

    def edit(_daemonset: dict[str, Any], config_map: dict[str, Any]) -> None:
        config_map["data"][key] = text

    return edit


def conflist_edit(change: Callable[[dict[str, Any]], None]) -> Edit:
    """Change the template of the conflist, whose bare placeholder is a number for that."""

    def edit(_daemonset: dict[str, Any], config_map: dict[str, Any]) -> None:
        text = config_map["data"]["cni_network_config"].replace("__CNI_MTU__", "424242")
        whole = json.loads(text)
        change(whole)
        config_map["data"]["cni_network_config"] = json.dumps(whole, indent=2).replace("424242", "__CNI_MTU__")

    return edit
