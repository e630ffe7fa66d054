"""The JSON of stored kinds.

``ipam`` (blocks, affinities and handles), ``stored_json`` (the codec of every kind, for stores that keep bytes).
"""
