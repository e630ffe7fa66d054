"""What is stored: block, affinity, handle, attributes, and their invariants."""
