"""The installer, ``netplug-install``.

- ``arguments``: the command line
- ``process``: what is done, in which order, and the exit status
- ``world``: what it acts through
- ``certificates``: copies the certificates of etcd again when they change
"""
