"""The built-in suites: one self-contained file each. Nothing else belongs here."""
