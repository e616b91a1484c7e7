"""Question to passages."""
