"""What connects a workload to its node, as data.

- ``protocol``: the :class:`~netplug_core.dataplane.protocol.Dataplane` protocol, its values and its errors
- ``plan``: what must exist in the namespace and on the host for a workload endpoint and a link
- ``ruleset``: a table of the packet filter, and its interface
- ``delta``: the differences between a plan and what was found
"""
