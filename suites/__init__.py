"""The built-in suites: a folder each, or a file, that leans on no other. Nothing else belongs here."""
