"""The Lease: it elects the one writer, and its annotations keep what must survive a restart."""
