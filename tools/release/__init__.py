"""What a release consists of and is called: version, changelog, wheel, chart archive, SBOM and checksums."""
