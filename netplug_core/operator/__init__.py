"""What the operator does in a cluster, as values. Pure: ``netplug_cli.operator`` reads the cluster and acts.

``plan`` (one reading of the cluster to actions) is made of ``crd_mode`` (which API group), ``wanted`` (what is
installed), ``removal`` (what goes, in which order) and ``nodes`` (how far the pods are). ``status``, ``conditions``,
``component_status`` and ``events`` say how it is. ``cluster`` and ``actions`` are the values between; ``objects`` has
the marks of the operator's objects.

- ``components``: the status of the kinds beside Installation
- ``conversion`` and ``node_migration``: a static manifest becomes an Installation, node by node
- ``lease``: which of several operators acts
- ``deployment`` and ``rights``: the operator itself as objects of a cluster, with the rights that it uses
- ``platform``: the pod CIDRs of a cluster that kubeadm has made
"""
