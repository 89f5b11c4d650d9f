"""Running an evaluation: who is compared, trials, journals, timing."""
