"""What stored resources should be, as functions of what they are and of what the orchestrator has.

- ``controller``: the frame of every loop: what a controller is, and when its next pass is due
- ``nat``: the table of NAT and of guards in the packet filter
- ``nodes``: a Node beside the orchestrator's node
"""
