"""The dataplane ``linux``: veth pairs, routes and sysctls in the kernel of this machine.

- ``dataplane``: :class:`~netplug_backends.linux.dataplane.LinuxDataplane`, the order of the steps
- ``attachment``: interfaces, veth pairs, routes and kernel settings of an attachment
- ``netns``: entering a network namespace, and which one is our own
- ``netlink``: the rtnetlink messages as bytes, their replies as values, and the socket that sends them
- ``inspection``: the state in the kernel, for CHECK, read with pyroute2
- ``addresses``: interfaces and addresses of the node
- ``routing``: tunnels and routes between nodes; ``routing_messages`` has their messages
- ``nftables``: tables of the packet filter
- ``pinned_namespaces``: namespaces of ``netplugctl lab``
"""
