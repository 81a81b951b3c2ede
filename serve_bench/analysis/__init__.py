"""What records say: statistics, doubts, comparison, history, verdicts. Pure."""
