"""Whatever a runtime, a pod or a disk hands over, a call ends in one JSON document, and a failed one changes nothing.

`make nightly` tries 10,000 calls.
"""

import json
import tempfile
from pathlib import Path

from hypothesis import event, given

from netplug_core.cni.dispatch import ProcessOutput
from netplug_core.errors import ErrorCode
from tests.harness.example_counts import MALFORMED_CALLS
from tests.harness.malformed import MalformedCall, make_node, malformed_calls, serve, state_of


def error_code(output: ProcessOutput) -> int:
    """The code of the one error object; 0 if the call succeeded with a result or with nothing."""
    assert "Traceback" not in output.stdout
    if output.exit_status == 0:
        if output.stdout:
            assert isinstance(json.loads(output.stdout), dict)
        return 0
    error = json.loads(output.stdout)
    assert set(error) <= {"cniVersion", "code", "msg", "details"}
    assert all(isinstance(error[key], str) for key in ("cniVersion", "msg"))
    assert error["msg"]
    assert isinstance(error["code"], int)
    return int(error["code"])


@MALFORMED_CALLS
@given(malformed_calls())
def test_a_call_ends_in_one_document_and_a_failed_one_changes_nothing(call: MalformedCall) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, log = Path(name), list[str]()
        node = make_node(call, folder)
        before = state_of(node, folder)
        output = serve(node, call, folder, log=log)
        code = error_code(output)
        event(f"code {code}")
        assert code != ErrorCode.UNFORESEEN.number, log
        if code:
            assert state_of(node, folder) == before, output.stdout
        elif call.environ.get("CNI_COMMAND") == "ADD":
            assert error_code(serve(node, call, folder, command="DEL")) == 0
            assert node.allocations() == {}
            assert node.handles() == []
            assert node.endpoints() == []
            assert node.dataplane.names() == ()
