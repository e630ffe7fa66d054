"""The operator, ``netplug-operator``: it keeps a cluster as its Installation says.

- ``process``: the command line, the loop that reads the cluster, plans and acts, and the pages over HTTP
- ``observing``: the reading, and what wakes the loop
- ``acting``: the writes of one action, the status of components, Events
- ``election``: which of several operators acts
- ``metrics``: what is counted
- ``world``: what it acts through
"""
