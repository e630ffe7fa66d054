"""docs/install-manifests.md: what it shows is printed, and it names every manifest and every setting."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from netplug_core.installation.static import Method, default_settings, static_template
from tools.images.root import HELPERS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "install-manifests.md"
TEXT = PAGE.read_text()


def test_what_is_refused_is_printed() -> None:
    script = next(block for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL) if "--set mtu" in block)
    printed = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)[0]
    environ = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, env=environ)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", printed)


@pytest.mark.parametrize("method", list(Method))
def test_every_manifest_and_setting_is_there(method: Method) -> None:
    assert f"| `{method.value}` |" in TEXT
    assert [key for key in default_settings(method) if f"`{key}`" not in TEXT] == []


def test_a_plugin_that_the_image_does_not_have_is_asked_for() -> None:
    needed = dict[str, set[str]]()
    for method in Method:
        for plugin in re.findall(r'"type": "([a-z-]+)"', static_template(method)):
            if plugin not in (*HELPERS, "netplug", "netplug-ipam", "k8s"):
                needed.setdefault(plugin, set()).add(method.value)
    assert needed == {"flannel": {"manifest-etcd-flannel"}}
    assert (
        "`manifest-etcd-flannel` needs one thing more: the CNI plugin `flannel` in `/opt/cni/bin` of every node" in TEXT
    )
