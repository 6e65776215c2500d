"""Speculative decoding with language models: which proposals an engine uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.generation import DraftProposer, PromptLookup, Proposer
from polyhal.hal.errors import ShapeError, message

if TYPE_CHECKING:
    from polyhal.llm.language_model import LanguageModel


def make_proposer(model: LanguageModel, slots: int, lookup: bool, captured: bool = True) -> Proposer | None:
    """Return the source of proposals for a model: its draft model, or earlier parts of the text; None without either.

    Raises ShapeError for both.
    """
    draft = model.draft
    if draft is None:
        return PromptLookup() if lookup else None
    if lookup:
        raise ShapeError(message("speculation", "a draft model and prompt look-up", expected="one of them"))
    return DraftProposer(draft.model, slots, captured)


def check_draft(model: LanguageModel, draft: LanguageModel) -> None:
    """Raise ShapeError if the tokens of a draft model differ. Its vocabulary may be padded differently."""
    if not (model.has_tokenizer and draft.has_tokenizer):
        sizes = [m.model.config.vocab_size for m in (model, draft)]
        if sizes[0] != sizes[1]:
            problem = f"the draft model has {sizes[1]} tokens"
            raise ShapeError(message("speculation", problem, expected=f"{sizes[0]}, as the model has"))
        return
    for i in range(min(model.tokenizer.vocab_size, draft.tokenizer.vocab_size)):
        names = [m.tokenizer.token(i) for m in (model, draft)]
        if names[0] != names[1]:
            problem, expected = f"token {i} of the draft model is {names[1]!r}", f"{names[0]!r}, as the model has"
            fix = "use a smaller model of the same family"
            raise ShapeError(message("speculation", problem, expected=expected, fix=fix))
