"""The network configuration of a plugin, and the settings of the tool and the daemons.

``model`` (its values), ``load`` (from JSON, with defaults), ``datastores`` (which store it names), ``support`` (what
this release serves of it); ``tool`` (which store the environment, or the tool's own file, names).
"""
