"""The fleet as its kernel logs show it: coverage, boots, lost lines, GPU counts."""
