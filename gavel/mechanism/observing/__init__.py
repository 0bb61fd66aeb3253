"""What an observation of the cluster means for jobs, estimates and bills."""
