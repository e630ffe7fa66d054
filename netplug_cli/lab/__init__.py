"""The lab: a node and its pods in network namespaces of this machine, attached by the real plugin executables.

- ``lifecycle``: ``up`` and ``down``, the order in which a lab is made and removed
- ``inspection``: ``look``, what is there of a lab, for its status
- ``means``: what both act through; ``model``: what a lab consists of, as values; ``state``: its record on disk
- ``paths``: what is where in a lab's folder; ``folder``: the real one, its record and the lock on it
- ``conflist``: the configuration that a runtime finds, and what it says to a plugin; ``runtime`` says it
- ``choice``: options to a place for the data; ``stores``: those places, as values
- ``backing``: what has to stand there; ``withdrawal``: what is taken back from there, where others have things too
- ``servers``: an etcd and an API server of the lab's own; ``processes``: what of a lab outlives a command
- ``relays``: the way to servers outside; ``relay``: the program that goes it
- ``reachability``: who reaches whom, by packets
- ``report``: the lines and tables that a person sees
- ``namespaces``, ``cluster``: what all of them need of the kernel, and of an API server

``netplug_cli.lab.commands`` calls them.
"""
