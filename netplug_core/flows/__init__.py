"""Flows: the only place in the core where effects are ordered. A flow reads, lets rules decide, and acts.

``cni`` has one flow for each CNI command. ``ipam`` has the block IPAM (``service``), bulk changes of ``addresses`` and
``affinities``, and the garbage collector (``collect``). ``resources`` has a module for each verb of ``netplugctl``.
``node`` is what the node process does
for its own node. ``world`` has the interfaces that a flow acts through.
"""
