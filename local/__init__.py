"""Run all of Kura on this machine."""
