"""Complete and strict fakes for tests and simulation.

``datastore`` (records), ``dataplane`` (attachments without a kernel), ``routing`` (tunnels and routes between nodes,
likewise), ``ruleset`` (tables of the packet filter, and what they do to a packet), ``orchestrator`` (pods,
namespaces, nodes); ``hookimpls`` offers them under the name ``memory``.
"""
