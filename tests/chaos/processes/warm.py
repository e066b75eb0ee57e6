"""The imports of the programs under test, which the fork server does once before it forks."""

import httpx
import kubernetes.client
import urllib3

import konductor_like.cli.app
import konductor_like.controller.launch
from konductor_like.detection import packaged

packaged()
__all__ = ["httpx", "konductor_like", "kubernetes", "packaged", "urllib3"]
