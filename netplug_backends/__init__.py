"""How the world is read and changed: a package per backend, each offering hooks that ``netplug_core.registry`` opens.

``connections`` and ``host.atomic_files`` are what several backends need. No backend imports another; each third-party
client is imported by exactly one module.
"""
