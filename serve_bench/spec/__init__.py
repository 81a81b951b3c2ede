"""What commands measure, as typed models: one for each kind of run."""
