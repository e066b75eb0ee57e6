"""Tests of notifications: their words, and the webhooks."""
