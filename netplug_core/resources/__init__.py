"""The user-facing kinds, one module each: a kind's value, its members and its rules.

All share ``metadata``, and some ``fields``. ``kinds`` is their table. ``codec`` turns JSON-like mappings into values
and back. ``manifest`` is a document of a user. ``validation`` checks what a user asks for, by itself and beside what is
stored; ``patch`` applies labels and merge patches to a stored resource. ``installation`` is no kind of a datastore; the
room ``installation`` of the core reads and judges it.
"""
