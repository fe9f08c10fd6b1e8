"""The reference units: what each is made from, and how it is converted."""
