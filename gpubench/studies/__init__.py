"""Kinds of question: each file here makes findings, one sentence and one line each, of what was compared.

May import `comparing`; commands and the report ask for `findings_of`, and only faces (`show`) print it.
"""
