"""Complete and strict fakes for tests and simulation.

``datastore`` (records), ``dataplane`` (links and routes without a kernel), ``orchestrator`` (pods, namespaces, nodes);
``hookimpls`` offers them under the name ``memory``.
"""
