"""What the whole controller makes of an event: real reading, deciding and writing, on a test's clock."""
