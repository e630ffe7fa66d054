"""Foreign JSON, YAML and environment to values, and back: the one reader, driven by tables.

``codecs`` (single values), ``tables`` (which member of an object is which attribute of a class, and the cattrs
converter that follows the tables), ``schema`` (the OpenAPI schema of such a class), ``errors``, ``spelling`` (members
in another letter case), ``members`` (copies with another value at one place). The other rooms hold the tables of their
classes.
"""
