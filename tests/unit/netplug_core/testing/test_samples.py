"""The samples of the datastore suite."""

import pytest

from netplug_core.records import List, Malformed
from netplug_core.testing.datastore_harness import FRUIT, FRUIT_AND_TOOLS, SAMPLE_CODEC

APPLE = FRUIT.key("green", "apple")


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
