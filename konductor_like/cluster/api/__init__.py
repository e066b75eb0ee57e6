"""The API server: connection, credentials, requests, watches, and their errors."""
