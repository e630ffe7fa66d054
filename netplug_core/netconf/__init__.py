"""The network configuration of a plugin.

``model`` (its values), ``load`` (from the JSON object, with defaults, and what does not work yet). How to reach the
datastore is a value of ``settings``.
"""
