"""Live events: one reader of the store for all listeners."""
