"""Foreign JSON, YAML and environment to values, and back: the one reader, driven by tables.

``codecs`` (single values), ``tables`` (which member of an object is which attribute of a class, the cattrs converter
that follows the tables, the OpenAPI schema of such a class, and the errors), ``members`` (where a path leads, copies
with another value, other letter cases). The other rooms hold the tables of their classes.
"""
