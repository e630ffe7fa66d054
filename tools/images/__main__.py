"""`python -m tools.images` builds the image of the nodes. docs/images.md says what is in it."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from netplug_core.errors import NetplugError
from tools.images.build import REFERENCE, ROOT, build_node_image, find_source


def main() -> None:
    """Build the image, and print where it is, its digest and its size."""
    parser = argparse.ArgumentParser(prog="python -m tools.images", description="Build the image of the nodes.")
    parser.add_argument("--output", type=Path, default=ROOT / "dist" / "images", help="a folder (default: %(default)s)")
    output: Path = parser.parse_args().output
    try:
        built = build_node_image(output, find_source(os.environ), ROOT / ".cache" / "debian")
    except (NetplugError, ValueError, OSError) as error:
        sys.exit(f"tools.images: {error}")
    print(f"{REFERENCE}@{built.digest}")
    for file in (built.archive, built.sbom):
        print(f"{file}: {file.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
