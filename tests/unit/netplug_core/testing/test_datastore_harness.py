"""The verdicts and the samples of the datastore's conformance suite."""

import pytest

from netplug_core.records import List, Malformed
from netplug_core.testing.datastore_harness import FRUIT, FRUIT_AND_TOOLS, SAMPLE_CODEC, expect, expect_same

APPLE = FRUIT.key("green", "apple")


def test_a_verdict_shows_what_was_found_and_what_was_expected() -> None:
    expect_same(1, 1, "the number")
    with pytest.raises(AssertionError, match="the number: found 1, expected 2"):
        expect_same(1, 2, "the number")
    is_late = True
    expect(is_late, "it is early")
    with pytest.raises(AssertionError, match="it is late"):
        expect(not is_late, "it is late")


def test_the_sample_codec_keeps_texts_and_nothing_else() -> None:
    assert SAMPLE_CODEC.decode(APPLE, SAMPLE_CODEC.encode(APPLE, "rêd")) == "rêd"
    with pytest.raises(Malformed, match=r"Fruit\(green/apple\) is malformed: not a JSON string"):
        SAMPLE_CODEC.decode(APPLE, b"5")


def test_the_samples_stand_in_path_order_and_their_values_differ() -> None:
    for kind in FRUIT_AND_TOOLS.kinds:
        paths = [key.path for key in FRUIT_AND_TOOLS.keys if key.kind == kind]
        assert paths == sorted(paths)
    values = {FRUIT_AND_TOOLS.value(key, number) for key in FRUIT_AND_TOOLS.keys for number in range(3)}
    assert len(values) == 3 * len(FRUIT_AND_TOOLS.keys)
    assert List(FRUIT, ("green",)) in FRUIT_AND_TOOLS.prefixes
