"""The front door of the library: ``netplug_core.open``, and what it returns.

``opening`` (a URL to an open network), ``network`` (pools and addresses), ``arguments`` (what callers may pass),
``checked_datastore`` (the typed store behind it).
"""
