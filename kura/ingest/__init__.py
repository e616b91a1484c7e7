"""Files to store: find, parse, split, index, watch."""
