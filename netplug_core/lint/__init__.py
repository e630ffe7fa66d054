"""What ``netplugctl lint`` finds in configurations and manifests, before they are used.

- ``rules``: the table of all rules: identifier, severity, meaning, next step; ``docs/lint.md`` is made from it; and one
  place that breaks a rule, with its repair
- ``documents``: what a document is: a network configuration, a resource, an object of Kubernetes, an Installation
- ``configurations``, ``resources``: the documents of each sort, alone
- ``clusters``: pools, nodes, configurations and pods beside each other, and beside the networks of hosts
- ``check``: all of these together

What is accepted is decided where it is decided for a running cluster (``netconf``, ``resources``, ``ipam``,
``installation``, ``flows``); these modules call those rules, and have none of the same.
"""
