"""The user-facing kinds, each whole in one module: its value, its members and its rules.

Kinds that are nothing without each other share a module: those of BGP, of pools, policies and their sets. All share the
metadata in ``fields``. ``kinds`` is their table. ``codec`` turns JSON-like mappings into values and back, has a
document of a user as a value, and applies labels and merge patches. ``validation`` checks what a user asks for, by
itself and beside what is stored. ``installation`` is no kind of a datastore; the room ``installation`` of the core
reads and judges it.
"""
