"""What people and scripts read of a run, all of it computed from the run's events."""
