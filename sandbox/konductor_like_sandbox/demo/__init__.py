"""The demo: stand-in servers, the real controller as a process, and a story that must come true."""
