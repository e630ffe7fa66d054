"""The composition roots, one per role; only this package names a backend.

``cni`` opens what the plugins act through, ``ctl`` what ``netplugctl`` acts through, ``lab`` what its lab acts
through. ``backends`` has what they share.
"""
