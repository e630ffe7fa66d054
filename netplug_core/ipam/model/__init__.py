"""What is stored: block, affinity, handle, and their invariants."""
