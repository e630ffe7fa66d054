"""The lab: a node and its pods in network namespaces of this machine, attached by the real plugin executables.

- ``lifecycle``: ``up`` and ``down``, the order in which a lab is made and removed
- ``inspection``: ``look``, what is there of a lab, for its status
- ``model``: what a lab consists of, as values; ``state``: its record on disk
- ``folder``: where a lab keeps everything, and the lock on it
- ``conflist``: the configuration that a runtime finds, and what it says to a plugin; ``runtime`` says it
- ``reachability``: who reaches whom, by packets
- ``report``: the lines and tables that a person sees
- ``namespaces``: what all of them need of the kernel

``netplug_cli.ctl.commands.lab`` calls them.
"""
