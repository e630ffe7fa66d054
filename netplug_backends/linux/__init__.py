"""The dataplane of a Linux node.

- ``dataplane``: :class:`~netplug_backends.linux.dataplane.LinuxDataplane`, the order in which things are done
- ``netlink``: the few rtnetlink messages that this takes, as bytes, and their replies as values
- ``channel``: a netlink socket: batches of messages out, one outcome for each back
- ``netns``: entering a network namespace, and the way back
- ``sysctl``: reading and writing kernel settings
- ``inspection``: what is there now, for CHECK; the only module that uses pyroute2
"""
