"""Why a job waits, when it starts and ends, and which gangs a round has preempted."""
