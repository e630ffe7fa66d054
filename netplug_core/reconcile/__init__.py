"""What stored resources should be, as functions of what they are and of what the orchestrator has.

- ``nodes``: a Node beside the orchestrator's node
"""
