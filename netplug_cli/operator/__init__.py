"""The operator, ``netplug-operator``: it keeps a cluster as its Installation says.

- ``process``: the command line, the controller that reads the cluster, plans and acts, and the pages over HTTP
- ``metrics``: what is counted
- ``world``: what it acts through: the reading, the writes of one action, the status of components, Events
"""
