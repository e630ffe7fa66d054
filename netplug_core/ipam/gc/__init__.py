"""What may be freed: candidates, detection, confirmation."""
