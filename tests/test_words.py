"""Commands are parted into words as `shlex` parts them."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.words import split


@given(st.text(st.sampled_from("ab '\"\\#\n\t=é"), max_size=14), st.booleans())
def test_words_are_those_of_shlex(text, comments):
    try:
        expected = shlex.split(text, comments=comments)
    except ValueError:
        with pytest.raises(ValueError, match="No "):
            split(text, comments=comments)
    else:
        assert split(text, comments=comments) == expected
