"""The network configuration of a plugin.

``model`` has its values, and how they are made of the JSON object; ``precedence`` the annotations, and what wins. How
to reach the datastore is a value of ``settings``.
"""
