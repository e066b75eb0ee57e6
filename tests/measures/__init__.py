"""Commands that measure the code itself: how much there is, and how far one line travels through it."""
