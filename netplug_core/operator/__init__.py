"""What the operator does in a cluster, as values. Pure: ``netplug_cli.operator`` reads the cluster and acts.

- ``state``: the cluster as it is read, the actions, and the objects that are wanted
- ``plan``: from one reading of the cluster to actions, the removal among them
- ``report``: conditions, and how far the pods of the nodes are; ``status``: the status that is written, and Events
- ``lease``: which of several operators acts
- ``takeover``: a static manifest becomes an Installation, node by node
- ``deployment``: the operator itself as objects of a cluster, with the rights that it uses
"""
