"""Questions to Loki: LogQL, one request and its answer, and windows that are proven complete."""
