"""Plain rules from textbooks, fitted to a load by replays."""

from __future__ import annotations

from corral.loads.textbook.grid import TODAY
from corral.loads.textbook.playing import play_rules
from corral.loads.textbook.race import Fitted, fit, refit
from corral.loads.textbook.words import pseudo_code_of, sentence_of

__all__ = ["TODAY", "Fitted", "fit", "play_rules", "pseudo_code_of", "refit", "sentence_of"]
