"""Parts of containers."""

from netplug_core.installation.daemonset import fixed_variables, health_probe


def test_variables_are_sorted() -> None:
    """The same settings make the same pods, in whatever order they were found."""
    assert fixed_variables({"B": "2", "A": "1"}) == [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]


def test_a_probe_asks_the_node_itself() -> None:
    assert health_probe("/readyz", 9) == {
        "httpGet": {"host": "127.0.0.1", "port": 9, "path": "/readyz"},
        "timeoutSeconds": 5,
    }
