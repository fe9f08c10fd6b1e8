"""OpenAI's API, as its own SDK calls it."""
