"""Numbers: how vectors are packed, held and compared."""
