"""What the whole controller makes of an event: real reading, deciding, writing, on a clock that a test turns."""
