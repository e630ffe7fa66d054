"""The stores of kinds.

- ``store``: what every store offers, and what they share
- ``customobjects``: pools, reservations, configuration and the allocator's records, as custom objects
- ``workloadendpoints``, ``nodes``, ``profiles``: views of pods, nodes, namespaces and service accounts
- ``pod_and_node_facts``: the cluster's own objects as the core's values
- ``schemas``: the schemas of the custom resources
"""
