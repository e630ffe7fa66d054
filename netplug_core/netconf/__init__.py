"""The network configuration of a plugin.

``model`` (its values), ``load`` (from the JSON object, with defaults), ``unsupported`` (the keys that this release
refuses). How to reach the datastore is a value of ``settings``.
"""
