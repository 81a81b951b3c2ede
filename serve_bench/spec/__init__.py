"""What is asked for, as typed models: one for each kind of run."""
