"""Event sourcing: commands become facts, facts become state. See docs/decisions/0020."""
