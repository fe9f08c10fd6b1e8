"""The llm unit."""
