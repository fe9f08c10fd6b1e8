"""The asr unit."""
