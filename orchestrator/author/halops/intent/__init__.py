"""What a person wants, from a sentence in Chinese, English or both."""

from orchestrator.author.halops.intent.model import Intent, Word
from orchestrator.author.halops.intent.parse import parse_intent

__all__ = ["Intent", "Word", "parse_intent"]
