"""Measures detection on the labelled corpus, beside other systems: ``docs/detection-quality.md``."""
