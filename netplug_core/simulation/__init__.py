"""A cluster of allocators on a memory store: scenario, pods, simulator, metrics."""
