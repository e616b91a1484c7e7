"""What a hosting platform calls."""
