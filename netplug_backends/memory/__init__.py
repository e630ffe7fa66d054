"""Complete and strict fakes, for tests and simulation.

A datastore in the memory of one process (``datastore``) and a kernel's worth of links and routes (``dataplane``);
``hookimpls`` offers them under the name ``memory``.
"""
