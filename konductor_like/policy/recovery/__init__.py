"""The way back into service: the guards that keep a node out, its return, its probation."""
