"""Where the images of an Installation are. Pure."""

from __future__ import annotations

from typing import Final

from netplug_core.installation.defaults import ResolvedInstallation

__all__ = ["DEFAULT_IMAGE_PATH", "DEFAULT_REGISTRY", "NODE_IMAGE", "image_reference"]

DEFAULT_REGISTRY: Final = "docker.io/"
DEFAULT_IMAGE_PATH: Final = "netplug"
NODE_IMAGE: Final = "node"
"""The image with the node process and the installer of the plugin."""


def image_reference(resolved: ResolvedInstallation, image: str, version: str) -> str:
    """The reference of an image of a release, such as ``docker.io/netplug/node:v3.33.0``."""
    registry, path = resolved.registry or DEFAULT_REGISTRY, resolved.image_path or DEFAULT_IMAGE_PATH
    return f"{registry}{path.strip('/')}/{resolved.image_prefix}{image}:v{version}"
