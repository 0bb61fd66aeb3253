"""Turns the scheduler's types into answers of the API."""
