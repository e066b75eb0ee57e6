"""Notifications: their words (``messages``), and the webhooks that take them (``webhook``)."""
