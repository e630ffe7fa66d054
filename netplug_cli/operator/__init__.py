"""The operator, ``netplug-operator``: it keeps a cluster as its Installation says.

- ``arguments``: the command line
- ``process``: the loop that reads the cluster, plans, and acts
- ``observing`` and ``acting``: the reading, and the writes of one action
- ``components``: the status of what no release serves yet
- ``election``: which of several operators acts
- ``reporting`` and ``component_statuses``: Events, and the status of each component
- ``metrics``: what is counted; ``pages``: probes and metrics over HTTP
- ``watching``: gathers what has changed, and ends the process on a signal
- ``world``: what it acts through
"""
