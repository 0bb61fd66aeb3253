"""TrainingJob, a kind of Kubernetes: objects of users are submissions, and their status is that of the job."""
