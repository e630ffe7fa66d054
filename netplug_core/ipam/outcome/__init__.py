"""What a decision notes (trace) and says (refusals)."""
