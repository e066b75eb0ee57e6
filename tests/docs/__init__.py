"""The documentation: generated pages, links, commands and runbooks."""
