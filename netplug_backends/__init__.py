"""How the world is read and changed: a package per backend, each offering hooks that ``netplug_core.registry`` opens.

``catalog`` maps built-in names to modules; ``files`` and ``connections`` are what several backends need. No backend
imports another; each third-party client is imported by exactly one module.
"""
