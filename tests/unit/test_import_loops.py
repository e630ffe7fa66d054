"""No module imports itself by way of others, late or for its types alone: each can be read without its users."""

from graphlib import CycleError, TopologicalSorter

import grimp


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = grimp.build_graph("netplug_core", "netplug_backends", "netplug_cli", cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        loop = ()
        TopologicalSorter(imported).prepare()
    except CycleError as error:
        loop = error.args[1]
    assert not loop, " <- ".join(loop)
