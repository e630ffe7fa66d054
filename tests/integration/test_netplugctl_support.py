"""``netplugctl support bundle`` on every store: all resources are in it, and no secret of the machine or the store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.harness.support_bundles import plant_secrets, read_bundle
from tests.harness.tool_stores import SERVERS, make_tool_user
from tests.harness.tool_user import ToolUser


@pytest.fixture(params=("sqlite", *SERVERS))
def user(request: pytest.FixtureRequest, tmp_path: Path) -> ToolUser:
    """A person whose configuration leads to an empty store."""
    return make_tool_user(request, tmp_path, request.param)


def test_all_resources_are_in_it_and_no_secret(user: ToolUser) -> None:
    planted = plant_secrets(user.folder)
    assert user.run_command("create", "-f", "-", stdin=planted.pools).status == 0
    # Settings that no store of netplug's own reads.
    user.spec = {**user.spec, "datastoreOptions": {"all": json.dumps(planted.spec)}}
    path = user.folder / "bundle.tar.gz"
    result = user.run_command("support", "bundle", "-f", str(path), "--cni-conf-dir", planted.configurations)
    assert result.status == 0, result
    files = read_bundle(path)
    text = json.dumps(files, ensure_ascii=False) + "".join(files.values()) + result.all_output
    assert planted.find_leaked_secrets(text) == ()
    (pool,) = yaml.safe_load_all(files["resources/ippools.yaml"])
    assert (pool["metadata"]["name"], pool["spec"]["cidr"]) == ("main", "10.68.0.0/16")
    assert "main   10.68.0.0/16" in files["ipam/show.txt"]
    assert "Check complete; found no problems." in files["ipam/check.txt"]
    states = {part["path"]: part["state"] for part in json.loads(files["index.json"])["parts"]}
    assert {state for path, state in states.items() if not path.startswith("node/status")} == {"written"}
    assert yaml.safe_load(files["cluster.yaml"])["datastore"]["location"]
