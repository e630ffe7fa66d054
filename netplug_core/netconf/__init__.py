"""The network configuration of a plugin.

``model`` (its values), ``load`` (from JSON, with defaults), ``datastores`` (which store it names), ``support`` (what
this release serves of it).
"""
