"""JSON objects that somebody else wrote, read member by member.

``cni`` reads requests and results through it, ``netconf`` the network configuration, so that every wrong type is
reported in one form, with the place where it stands. Members nobody asks for are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.errors import DecodeError

__all__ = ["JSONObject", "is_utf8_without_nul"]

_MAX_UINT32 = 2**32 - 1


@frozen
class JSONObject:
    """The members of one JSON object, and where it stands: ``prevResult.ips[0]``. Null counts as absent.

    Each method raises DecodeError, naming the place, when the member is of another type.
    """

    path: str
    members: Mapping[str, object]

    @classmethod
    def of(cls, value: object, where: str) -> JSONObject:
        """The members of a value that must be an object."""
        if not isinstance(value, dict):
            raise DecodeError(where, "must be an object")
        return cls(where, value)

    def optional_string(self, key: str) -> str:
        """A string; empty when it is absent."""
        value = self.members.get(key)
        return "" if value is None else _string(value, self._at(key))

    def required_string(self, key: str) -> str:
        """A string that must not be empty."""
        text = self.optional_string(key)
        if not text:
            raise DecodeError(self._at(key), "is missing or empty")
        return text

    def optional_uint32(self, key: str) -> int | None:
        """An integer of 32 bits without sign, or None."""
        value = self.members.get(key)
        if value is None:
            return None
        # To Python a boolean is an integer; to JSON it is not.
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_UINT32:
            raise DecodeError(self._at(key), f"must be an integer from 0 to {_MAX_UINT32}")
        return value

    def optional_integer(self, key: str) -> int | None:
        """An integer of any size and sign, or None."""
        value = self.members.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise DecodeError(self._at(key), "must be an integer")
        return value

    def optional_boolean(self, key: str) -> bool | None:
        """True or false, or None when it is absent."""
        value = self.members.get(key)
        if value is None or isinstance(value, bool):
            return value
        raise DecodeError(self._at(key), "must be true or false")

    def optional_address(self, key: str) -> Address | None:
        """A bare address; None when it is absent or empty."""
        text = self.optional_string(key)
        if not text:
            return None
        try:
            return Address.parse(text)
        except ValueError as error:
            raise DecodeError(self._at(key), str(error)) from None

    def cidr(self, key: str) -> tuple[Address, Prefix]:
        """The two things that ``address/length`` says: the address, and the prefix it lies in."""
        text = self.required_string(key)
        bare, slash, _ = text.partition("/")
        try:
            address, prefix = Address.parse(bare), Prefix.enclosing(text)
        except ValueError as error:
            raise DecodeError(self._at(key), str(error)) from None
        if not slash:
            raise DecodeError(self._at(key), f"{text!r} has no prefix length; address/length is expected")
        return address, prefix

    def optional_object(self, key: str) -> JSONObject | None:
        """An object, or None."""
        value = self.members.get(key)
        return None if value is None else JSONObject.of(value, self._at(key))

    def object_list(self, key: str) -> tuple[JSONObject, ...]:
        """An array of objects; empty when it is absent."""
        return tuple(JSONObject.of(item, where) for where, item in self._items(key))

    def string_list(self, key: str) -> tuple[str, ...]:
        """An array of strings; empty when it is absent."""
        return tuple(_string(item, where) for where, item in self._items(key))

    def _items(self, key: str) -> tuple[tuple[str, object], ...]:
        value = self.members.get(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise DecodeError(self._at(key), "must be an array")
        return tuple((f"{self._at(key)}[{position}]", item) for position, item in enumerate(value))

    def _at(self, key: str) -> str:
        return f"{self.path}.{key}"


def is_utf8_without_nul(text: str) -> bool:
    """Whether a text can be said in UTF-8 to whoever takes texts: no NUL, and no surrogate, as JSON can spell one.

    Bytes of the environment that are no UTF-8 are surrogates too.
    """
    return not any(character == "\0" or "\ud800" <= character <= "\udfff" for character in text)


def _string(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise DecodeError(where, "must be a string")
    if not is_utf8_without_nul(value):
        raise DecodeError(where, "must be a text in UTF-8 without NUL")
    return value
