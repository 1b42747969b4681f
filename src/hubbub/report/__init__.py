"""Everything that is published about releases: labels and charts."""
