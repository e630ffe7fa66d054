"""What can be said of all blocks: utilization, metrics."""
