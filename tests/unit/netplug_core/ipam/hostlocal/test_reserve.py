"""host-local: which addresses an attachment gets, and why it gets none."""

import pytest

from netplug_core.addressing import Address
from netplug_core.errors import AllocationError
from netplug_core.ipam.hostlocal.reserve import (
    AddressFile,
    AddressHeld,
    AddressOutsideRanges,
    NetworkFolder,
    Owner,
    RangesExhausted,
    Reservation,
    reserve,
)
from netplug_core.ipam.hostlocal.settings import RangeSet, load_settings, make_range_sets

ME, OTHER = Owner("c1"), Owner("c2")


def sets(*cidrs: str) -> tuple[RangeSet, ...]:
    ranges = [[{"subnet": cidr}] for cidr in cidrs]
    return make_range_sets(load_settings({"cniVersion": "1.0.0", "ipam": {"ranges": ranges}}))


def file(address: str, owner: Owner | None = OTHER) -> AddressFile:
    return AddressFile(address, Address.parse(address), owner, 0)


def choose(
    *files: AddressFile,
    cidrs: tuple[str, ...] = ("10.0.0.0/29",),
    requested: tuple[str, ...] = (),
    last: dict[int, str] | None = None,
    ended: tuple[AddressFile, ...] = (),
) -> tuple[Reservation, ...]:
    folder = NetworkFolder(
        files=files, last_reserved={number: Address.parse(text) for number, text in (last or {}).items()}
    )
    wanted = tuple(map(Address.parse, requested))
    return reserve(folder, sets(*cidrs), ME, wanted, frozenset(ended))


def addresses(made: tuple[Reservation, ...]) -> list[str]:
    return [str(one.address) for one in made]


def test_each_range_set_gives_its_next_free_address() -> None:
    made = choose(
        file("10.0.0.4"), file("10.0.0.5", None), cidrs=("10.0.0.0/29", "fd00::/64"), last={0: "10.0.0.3", 1: "fd00::9"}
    )
    assert addresses(made) == ["10.0.0.6", "fd00::a"]
    assert [(one.range_set, one.is_new, one.replaced) for one in made] == [(0, True, ()), (1, True, ())]
    assert [str(one.range.subnet) for one in made] == ["10.0.0.0/29", "fd00::/64"]


def test_what_the_attachment_holds_is_given_again() -> None:
    (made,) = choose(file("10.0.0.5", ME), file("fd00::2", ME), last={0: "10.0.0.2"})
    assert (str(made.address), made.is_new) == ("10.0.0.5", False)


def test_another_interface_of_the_container_has_its_own() -> None:
    (made,) = choose(file("10.0.0.2", Owner("c1", "net1")))
    assert (str(made.address), made.is_new) == ("10.0.0.3", True)


def test_a_full_set_says_so() -> None:
    with pytest.raises(RangesExhausted) as caught:
        choose(file("10.0.0.2"), cidrs=("10.0.0.0/30",))
    assert str(caught.value) == "no IP addresses available in range set: 10.0.0.1-10.0.0.2; 1 are held"
    assert (caught.value.code, caught.value.identifier) == (105, "pools-exhausted")
    assert caught.value.next_step == "add a range, or remove the files of containers that no longer exist"


def test_a_full_set_names_the_files_that_name_no_container() -> None:
    with pytest.raises(RangesExhausted) as caught:
        choose(file("10.0.0.2", None), file("10.0.0.3"), *(file(f"10.0.0.{last}", None) for last in (4, 5, 6)))
    assert str(caught.value).endswith(
        "; 5 are held, 4 of them by files that name no container (10.0.0.2, 10.0.0.4, 10.0.0.5, 10.0.0.6)"
    )
    with pytest.raises(RangesExhausted) as caught:
        choose(*(file(f"10.0.0.{last}", None) for last in range(2, 15)), cidrs=("10.0.0.0/28",))
    assert str(caught.value).endswith(
        "13 of them by files that name no container (10.0.0.2, 10.0.0.3, 10.0.0.4, 10.0.0.5, 10.0.0.6, …)"
    )


def test_before_a_set_is_full_nothing_is_taken_over() -> None:
    old = file("10.0.0.2")
    assert addresses(choose(old, file("10.0.0.3"), ended=(old,))) == ["10.0.0.4"]


def test_a_full_set_gives_the_address_of_a_container_that_ended_with_an_earlier_boot() -> None:
    held, first, second = file("10.0.0.2"), file("10.0.0.3"), file("10.0.0.4")
    rest = (file("10.0.0.5"), file("10.0.0.6"))
    (made,) = choose(held, first, second, *rest, ended=(first, second))
    assert (str(made.address), made.is_new, made.replaced) == ("10.0.0.3", True, (first,))


def test_an_address_that_a_second_file_holds_is_not_taken_over() -> None:
    old, same = file("fd00::2"), AddressFile("FD00::2", Address.parse("fd00::2"), OTHER, 9)
    with pytest.raises(AddressHeld):
        choose(old, same, cidrs=("fd00::/64",), requested=("fd00::2",), ended=(old,))


def test_a_container_that_came_back_after_a_boot_keeps_its_address_in_a_new_file() -> None:
    mine = file("10.0.0.5", ME)
    (made,) = choose(mine, ended=(mine,))
    assert (str(made.address), made.is_new, made.replaced) == ("10.0.0.5", True, (mine,))


def test_an_address_that_is_asked_for() -> None:
    assert addresses(choose(requested=("10.0.0.6",))) == ["10.0.0.6"]
    assert addresses(choose(file("10.0.0.6", ME), requested=("10.0.0.6",))) == ["10.0.0.6"]
    old = file("10.0.0.6")
    assert choose(old, requested=("10.0.0.6",), ended=(old,))[0].replaced == (old,)
    both = choose(cidrs=("10.0.0.0/29", "fd00::/64"), requested=("fd00::5",))
    assert addresses(both) == ["10.0.0.2", "fd00::5"]


@pytest.mark.parametrize(
    "requested,files,text",
    [
        (("10.0.0.6",), (file("10.0.0.6"),), "the address 10.0.0.6 is held by container c2"),
        (("10.0.0.6",), (file("10.0.0.6", None),), "the address 10.0.0.6 is held by a file that names no container"),
        (("10.0.0.1",), (), "cannot assign 10.0.0.1: it is the gateway of 10.0.0.0/29"),
        (
            ("10.0.0.7",),
            (),
            "cannot assign 10.0.0.7: each range set gives one address, and they are 10.0.0.1-10.0.0.6",
        ),
        (
            ("10.0.0.2", "10.0.0.3"),
            (),
            "cannot assign 10.0.0.3: each range set gives one address, and they are 10.0.0.1-10.0.0.6",
        ),
    ],
)
def test_an_address_that_cannot_be_had(requested: tuple[str, ...], files: tuple[AddressFile, ...], text: str) -> None:
    with pytest.raises(AllocationError) as caught:
        choose(*files, requested=requested)
    assert str(caught.value) == text
    assert caught.value.code == (112 if isinstance(caught.value, AddressHeld) else 111)
    assert isinstance(caught.value, (AddressHeld, AddressOutsideRanges))
