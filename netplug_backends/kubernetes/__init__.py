"""The datastore ``kubernetes`` and the orchestrator behind it: the API server, spoken to in plain JSON.

``access`` finds the API and our credentials, ``client`` sends requests and ``transport`` carries them. ``names`` and
``layout`` say how records are called and spelled there, for both groups of custom resources; ``objects`` keeps those,
``endpoints`` and ``nodes`` are views of what the cluster has anyway, ``datastore`` puts them together and ``watching``
follows them. ``orchestrator`` asks about pods. ``schemas`` and ``manifests`` make the definitions and the roles that
a cluster needs. ``hookimpls`` offers it all.
"""
