"""The datastore ``kubernetes`` and the orchestrator ``kubernetes``: the API server, reached with plain JSON over HTTP.

- ``names``: names, paths, labels and API groups of objects
- ``layout``: how each kind is encoded as a custom object
- ``client``: how requests reach the API server
- ``kinds``: one store for custom objects, and one for each kind that is a view of the cluster's own objects
- ``datastore``: the stores of all kinds as one datastore
- ``orchestrator``: lookups of pods, namespaces and nodes
- ``cluster``, ``cluster_state``: the cluster that ``netplugctl install`` works with, and what its objects say
- ``cluster_objects``: objects of the cluster as they are installed, by the operator and by ``netplugctl``
- ``manifests``: the definitions and the roles that a cluster needs
- ``lab``: the objects of ``netplugctl lab`` on a cluster
- ``hookimpls``: what the registry loads
"""
