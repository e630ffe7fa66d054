"""Counting what a handle holds."""

from netplug_core.addressing import Prefix
from netplug_core.ipam.model import HANDLE, Handle, handle_key, handle_query
from netplug_core.records import Get

LOW, HIGH, SIX = (Prefix.parse(text) for text in ("10.0.0.0/26", "10.0.0.64/26", "fd00::/122"))


def test_counts_are_kept_by_block_in_order() -> None:
    handle = Handle().with_count(SIX, 1).with_count(HIGH, 2).with_count(LOW, 3)
    assert handle.blocks == ((LOW, 3), (HIGH, 2), (SIX, 1))
    assert (handle.count(HIGH), handle.count(SIX)) == (2, 1)


def test_a_count_is_replaced_and_nothing_left_is_forgotten() -> None:
    handle = Handle(blocks=((LOW, 3), (HIGH, 2)), unknown_json='{"x":1}')
    assert handle.with_count(LOW, 5).blocks == ((LOW, 5), (HIGH, 2))
    assert handle.with_count(LOW, 0) == Handle(blocks=((HIGH, 2),), unknown_json='{"x":1}')
    assert handle.with_count(LOW, 0).count(LOW) == 0


def test_a_touched_handle_counts_the_same_and_is_another_one() -> None:
    handle = Handle(blocks=((LOW, 3),), unknown_json='{"x":1}')
    touched = handle.touched()
    assert (touched.blocks, touched.unknown_json) == (handle.blocks, handle.unknown_json)
    assert handle != touched != touched.touched()
    assert touched.with_count(LOW, 3) == touched


def test_a_block_that_is_not_known_counts_nothing() -> None:
    assert Handle(blocks=((LOW, 3),)).count(HIGH) == 0
    assert Handle().blocks == ()


def test_trap_33_the_key_is_the_id_as_it_is_and_ids_that_differ_in_case_are_two() -> None:
    assert handle_key("Net.4F2A.eth1") == HANDLE.key("Net.4F2A.eth1")
    assert handle_key("Net.4F2A.eth1") != handle_key("net.4f2a.eth1")


def test_the_question_for_a_handle_is_one_object_so_that_an_answer_is_found_without_comparing() -> None:
    assert handle_query("net.a.eth0") == Get(HANDLE.key("net.a.eth0"))
    assert handle_query("net.a.eth0") is handle_query("net.a.eth0")
