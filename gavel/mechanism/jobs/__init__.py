"""What happens to a job: its states, the events between them, and what keeps it from being scheduled."""
