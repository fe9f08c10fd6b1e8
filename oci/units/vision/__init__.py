"""The vision unit."""
