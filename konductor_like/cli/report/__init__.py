"""``konductor-like report``: one HTML page about the outages of a span, for the people who pay."""
