"""The dataplane ``linux``: veth pairs, routes and sysctls in the kernel of this machine.

- ``dataplane``: :class:`~netplug_backends.linux.dataplane.LinuxDataplane`, the order of the steps
- ``links``: interfaces and veth pairs
- ``routes``: routes, and conflicts between them
- ``sysctls``: kernel settings
- ``netns``: entering a network namespace, and which one is our own
- ``netlink``: the rtnetlink messages as bytes, and their replies as values
- ``netlink_socket``: a socket that sends batches of them
- ``inspection``: the state in the kernel, for CHECK, read with pyroute2
- ``nftables``: tables of the packet filter
- ``pinned_namespaces``: namespaces of ``netplugctl lab``
"""
