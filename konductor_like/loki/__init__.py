"""Reading log lines out of Grafana Loki without losing one: LogQL, windows, cursor, de-duplication."""
