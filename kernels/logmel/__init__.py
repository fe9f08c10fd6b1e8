"""Whisper's log-mel spectrogram."""
