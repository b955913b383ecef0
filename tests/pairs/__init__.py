"""A table of rows: each kind of stage, under each strategy, on each batch system, with what follows it or is beside it.

`kinds` has the kinds, `rows` makes the table of them, `plain` says how each row is to end, and `places` runs it.
"""

import pytest

pytest.register_assert_rewrite("pairs.places")
