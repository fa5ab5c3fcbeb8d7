"""The built-in suites, one folder or file per suite. Suites do not import each other."""
