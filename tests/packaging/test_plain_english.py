"""Source, docs and changelog stay readable: limits on phrases that make sentences hard to read."""

from __future__ import annotations

import pytest

from tests.support.plain import (
    PHRASES,
    Phrase,
    count,
    rate,
    texts_by_part,
    vague_names,
    words,
    worst,
)

TEXTS = texts_by_part()

VAGUE_NAMES = 550
"""Names such as found, own and given; may only fall (3,014 before)."""

HARD = {
    "where for if": "None where there is no such file.",
    "what as a noun": "Return what was told of a field.",
    "whose": "a run whose folder is gone",
    "is no": "this is no state of this team",
    "beside": "the rule beside the team",
    "go on": "the run goes on",
    "nobody": "an option that nobody gave",
    "alike, anew, told": "episodes begin anew",
}


@pytest.mark.parametrize("phrase", PHRASES, ids=lambda phrase: phrase.name)
def test_a_hard_phrase_is_counted(phrase: Phrase) -> None:
    assert count(phrase, HARD[phrase.name]) == 1
    assert count(phrase, "Return the field's metadata.") == 0


@pytest.mark.parametrize("phrase", PHRASES, ids=lambda phrase: phrase.name)
@pytest.mark.parametrize("part", TEXTS)
def test_hard_phrases_are_rare(part: str, phrase: Phrase) -> None:
    texts = TEXTS[part]
    assert words(texts) > {"source": 100_000, "docs": 30_000, "changelog": 500}[part]
    assert rate(phrase, texts) <= phrase.limit, "\n".join(worst(texts, (phrase,)))


def test_vague_names_do_not_come_back() -> None:
    names = vague_names()
    assert 0 < len(names) <= VAGUE_NAMES, "\n".join(names[-20:])
