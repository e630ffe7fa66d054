"""Which datastore, and how to reach it. Backends, tool, plugin and library share these settings.

``model`` (the values, the name of each setting in the network configuration, in the environment and in the tool's file,
and which settings exclude each other), ``apiconfig`` (from the environment, the file of the tool, or
a URL, for the library).
"""
