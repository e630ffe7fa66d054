"""docs/api.md is what the library offers: a change of the interface shows in a review as a change of that page."""

import netplug_core
from tools.api import PAGE, render_page


def test_the_page_is_as_the_tool_writes_it() -> None:
    assert PAGE.read_text() == render_page(), "python -m tools.api writes it anew"


def test_every_offered_name_has_a_row_and_a_stub() -> None:
    text = render_page()
    for name in netplug_core.__all__:
        assert text.count(f"\n| `{name}` | ") == 1
        assert (
            sum(
                text.count(f"\n{start}")
                for start in (f"class {name}(", f"class {name}:", f"def {name}(", f"{name} = ", f"{name}: ")
            )
            == 1
        )
