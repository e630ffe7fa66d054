"""What connects a workload to its node, as data.

- ``interface``: the :class:`~netplug_core.dataplane.protocol.Dataplane` protocol, the values that it speaks of and
  the errors that it raises
- ``plan``: a workload endpoint and a link to what must be true in the namespace and on the host
- ``delta``: a plan and what was found to what is different
"""
