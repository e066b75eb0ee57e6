"""Reading: when Loki is polled, and how its lines reach the reconciler."""
