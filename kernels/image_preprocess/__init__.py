"""A picture as a model's input: crop or pad, antialiased resize, normalise, planes."""
