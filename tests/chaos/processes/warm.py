"""Imported by the fork server before it forks: all that the programs under test would import themselves."""

import httpx
import kubernetes.client
import urllib3

import konductor_like.cli.app
import konductor_like.controller.launch
from konductor_like.detection import packaged

packaged()
__all__ = ["httpx", "konductor_like", "kubernetes", "packaged", "urllib3"]
