"""What connects a workload to its node, as data.

- ``protocol``: the :class:`~netplug_core.dataplane.protocol.Dataplane` protocol, its values and its errors
- ``plan``: what must exist in the namespace and on the host for a workload endpoint and a link, and what differs from
  it
- ``routing``: routes and tunnels between nodes, and the interface of who programs them; ``bgp``: that of a BGP daemon
- ``ruleset``: a table of the packet filter, and its interface; ``phases``: how it changes while packets pass
- ``filter``: what policy enforces, as such a table
- ``tracker``: what should be and what is, by key
"""
