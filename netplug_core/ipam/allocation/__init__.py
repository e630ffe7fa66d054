"""The decisions of assignment and release."""
