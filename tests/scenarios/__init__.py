"""The whole controller reads, decides and writes, on simulated time."""
