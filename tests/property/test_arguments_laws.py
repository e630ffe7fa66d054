"""Laws of CNI_ARGS.

1. Whatever CNI_ARGS holds, a DEL is read.
2. What an ADD accepts, a DEL reads in the same way, as far as it uses it.
"""

from hypothesis import given
from hypothesis import strategies as st

from netplug_core.cni.request import CNIArgs
from netplug_core.errors import RequestError

PARTS = st.one_of(
    st.text(),
    st.sampled_from(["", "IP=10.0.0.1", "IP=10.0.0.1/24", "IgnoreUnknown=1", "IgnoreUnknown=2", "MAC=x", "A=b=c"]),
    st.sampled_from(["K8S_POD_NAME=a", "K8S_POD_NAME=b", "K8S_POD_NAMESPACE=c", "K8S_POD_UID=d"]),
)


@given(st.lists(PARTS), st.lists(PARTS))
def test_no_text_stops_a_del(before: list[str], after: list[str]) -> None:
    text = ";".join((*before, "K8S_POD_NAME=web-0", "K8S_POD_NAMESPACE=test", *after))
    args = CNIArgs.parse_for_delete(text)
    assert {"K8S_POD_NAME", "K8S_POD_NAMESPACE"} <= {key for key, _value in args.pairs}
    assert (args.address, args.mac, args.pod_uid) == (None, "", "")


@given(st.lists(PARTS).map(";".join))
def test_what_an_add_accepts_a_del_reads_in_the_same_way(text: str) -> None:
    try:
        added = CNIArgs.parse(text)
    except RequestError:
        return
    torn = CNIArgs.parse_for_delete(text)
    assert (torn.pod_namespace, torn.pod_name, torn.pairs) == (added.pod_namespace, added.pod_name, added.pairs)
