"""docs/annotations.md: it names every annotation, and shows the errors that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from netplug_core.errors import ConfigurationError
from netplug_core.netconf.model import IPAMConfig, NetConf
from netplug_core.netconf.precedence import ANNOTATIONS, AnnotatedPod, parse_annotations, require_allowed
from netplug_core.orchestrator.model import PodName

PAGE = (Path(__file__).parents[2] / "docs" / "annotations.md").read_text()
NAMES = {
    text for name, text in vars(annotations).items() if name.isupper() and isinstance(text, str) and "." not in text
}


def test_the_table_names_every_annotation() -> None:
    rows = re.findall(r"^\| (`\w+`.*?) \| pod", PAGE, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(ANNOTATIONS)


def shown_errors() -> list[str]:
    block: str = re.findall(r"```text\n(annotation .*?)```", PAGE, re.DOTALL)[0]
    return block.splitlines()


@pytest.mark.parametrize("line", shown_errors())
def test_each_error_is_what_the_annotation_gets(line: str) -> None:
    found = re.match(r"annotation (\S+) of pod default/web: '(.*?)' is not accepted; ", line)
    assert found
    name, text = found.groups()
    pod = AnnotatedPod(name=PodName("default", "web"), annotations=((name, text),))
    with pytest.raises(ConfigurationError) as caught:
        require_allowed(pod, parse_annotations(pod), NetConf(ipam=IPAMConfig(type="netplug-ipam")))
    assert str(caught.value) == line
