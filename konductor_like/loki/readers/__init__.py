"""Readers: each delivers the lines of a source, or of a part of the past, once."""
