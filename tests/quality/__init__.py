"""How well detection does on the labelled corpus, beside other systems: ``docs/detection-quality.md``."""
