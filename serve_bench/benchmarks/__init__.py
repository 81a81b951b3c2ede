"""A folder for each kind of run: what is asked for, how a row is measured, its summary."""
