"""``netplug-controllers``: what keeps the records of a cluster in order. One process of a cluster acts.

- ``process``: the command line and probes
- ``metrics``: what is counted and measured
- ``nodes``: the configuration, host endpoints that nodes have by themselves, Nodes whose machines are gone
- ``copies``: what is copied from Kubernetes to a datastore of netplug's own
- ``collection``: addresses, blocks and handles that are in use no more
"""
