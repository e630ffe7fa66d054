"""Complete and strict fakes, for tests and simulation.

A datastore in the memory of one process (``datastore``), a kernel's worth of links and routes (``dataplane``), and the
pods, namespaces and nodes of an orchestrator; ``hookimpls`` offers them under the name ``memory``.
"""
