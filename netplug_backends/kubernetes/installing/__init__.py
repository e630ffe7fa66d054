"""What installs netplug into a cluster reads and writes there.

- ``cluster``: the objects of an installation, found, applied and deleted; what runs now.
- ``manifests``: the manifests that the package ships, read and filled.
- ``watch``: what has changed in the cluster, for the operator.
"""
