"""The generic guests in C, how they are built, and where they lie once they are."""
