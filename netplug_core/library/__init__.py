"""The front door of the library: ``netplug_core.open``, and what it returns.

``network`` (a URL to an open network, pools and addresses), ``arguments`` (what callers may pass),
``checked_datastore`` (the typed store behind it).
"""
