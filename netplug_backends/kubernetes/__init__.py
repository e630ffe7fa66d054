"""The datastore ``kubernetes`` and the orchestrator ``kubernetes``: the API server, reached with plain JSON over HTTP.

- ``names``: names, paths, labels and API groups of objects
- ``layout``: how each kind is encoded as a custom object
- ``client``: how requests reach the API server
- ``kinds``: one store for custom objects, and one for each kind that is a view of the cluster's own objects
- ``datastore``: the stores of all kinds as one datastore
- ``orchestrator``: lookups of pods, namespaces and nodes; ``service_account``: the account of a pod
- ``installing``: the cluster as the operator and ``netplugctl install`` read, write and watch it
- ``lab``: the objects of ``netplugctl lab`` on a cluster
- ``hookimpls``: what the registry loads
"""
