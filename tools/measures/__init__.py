"""Commands that measure the code itself: its size, and the functions that one line passes."""
