"""The JSON of stored kinds, and of files with them.

``ipam`` (blocks, affinities and handles), ``stored_json`` (the codec of every kind, for stores that keep bytes),
``export`` (the files of the tool).
"""
