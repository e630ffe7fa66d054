"""The installer, ``netplug-install``.

- ``arguments``: the command line
- ``process``: what is done, in which order, and the exit status; what it acts through; fresh certificates of etcd
"""
