"""Sends notifications to users by webhook and e-mail, beside the scheduler and without ever holding it up."""
