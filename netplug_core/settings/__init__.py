"""Which datastore, and how to reach it. Backends, tool and plugin share these settings.

``model`` (the values), ``netconf_keys`` (from the network configuration of a plugin), ``apiconfig`` (from the
environment, or from the file of the tool and the daemons).
"""
