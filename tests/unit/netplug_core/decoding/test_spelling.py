"""Members in another letter case are found, and taken out of the object."""

from netplug_core.decoding.members import RespelledMember, take_respelled

PATH = ("spec", "cni", "ipam", "plugin")


def test_an_object_without_them_is_returned_as_it_is() -> None:
    members = {"spec": {"cni": {"ipam": {"plugin": "a"}, "other": 1}}, "kind": "x"}
    assert take_respelled(members, PATH) == (members, ())


def test_a_member_is_taken_with_the_objects_that_only_lead_to_it() -> None:
    members = {"kind": "x", "Spec": {"CNI": {"IPAM": {"Plugin": "a"}}}}
    left, taken = take_respelled(members, PATH)
    assert left == {"kind": "x"}
    assert taken == (RespelledMember("Spec.CNI.IPAM.Plugin", PATH, "a"),)


def test_what_stands_beside_it_stays() -> None:
    members = {"spec": {"cni": {"IPAM": {"Plugin": "a", "x": 1}, "ipam": {"plugin": "b", "PLUGIN": "c"}}}}
    left, taken = take_respelled(members, PATH)
    assert left == {"spec": {"cni": {"IPAM": {"x": 1}, "ipam": {"plugin": "b"}}}}
    assert [(member.path, member.value) for member in taken] == [
        ("spec.cni.IPAM.Plugin", "a"),
        ("spec.cni.ipam.PLUGIN", "c"),
    ]


def test_objects_that_lead_nowhere_stay() -> None:
    members = {"Spec": {}, "SPEC": {"cni": [1]}, "spec": {"CNI": 3}}
    assert take_respelled(members, PATH) == (members, ())


def test_an_empty_object_on_the_exact_path_stays() -> None:
    members = {"spec": {"cni": {"ipam": {"Plugin": "a"}}}}
    assert take_respelled(members, PATH)[0] == {"spec": {"cni": {"ipam": {}}}}
