"""From rows to an answer: statistics, comparisons, tables, charts. Never imports torch."""
