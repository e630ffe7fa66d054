"""What the node process does for its own node.

- ``registration``: its Node in the datastore, and the file with its name
- ``tunnels``: the addresses of its tunnels
"""
