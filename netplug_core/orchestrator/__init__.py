"""What is asked of whoever schedules pods, and its answers as values: ``interface``."""
