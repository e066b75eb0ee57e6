"""Side work: threads that send Events, conditions and notifications, and delay no taint."""
