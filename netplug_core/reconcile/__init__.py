"""What stored resources should be, as functions of what they are and of what the orchestrator has.

- ``controller``: the frame of every loop: what a controller is, and when its next pass is due
- ``registration``: which address a node registers
- ``routes``: the routes and tunnels of a node; ``tunnels``: the addresses of its tunnels, and MTUs
- ``peers``: with whom a node speaks BGP, and what is exchanged
- ``nat``: the table of NAT and of guards in the packet filter
- ``nodes``: a Node beside the orchestrator's node
"""
