"""The composition roots, one per role; only this package names a backend.

``cni`` opens what the plugins act through, ``ctl`` what ``netplugctl`` acts through, ``lab`` what its lab acts
through. ``install`` and ``operator`` are the installer and the operator.
``node`` starts the node process, ``node_process`` opens what its calls and controllers act through, ``node_network``
what connects its node with others, BGP too. ``backends`` has what they share.
"""
