"""The words of a changelog: what a row of it does to the table that it describes. Pure.

A row of a changelog has the columns of the table and two more. `_change` says what happened:

  upsert, delete    by key: the row of this key is now this one; there is none any more. A delete
                    has only the key's columns set.
  insert, retract   by value: this whole row came (+1), this whole row went (-1).

`_order` rises with each change of one key; rows of one batch that lack it, or have the same, are
one change: what goes, goes before what comes. A row without `_change` is an upsert.
"""

from typing import Final

CHANGE: Final = "_change"
ORDER: Final = "_order"

UPSERT: Final = "upsert"
DELETE: Final = "delete"
INSERT: Final = "insert"
RETRACT: Final = "retract"

CHANGES: Final = (UPSERT, DELETE, INSERT, RETRACT)
COMING: Final = frozenset({UPSERT, INSERT})
GOING: Final = frozenset({DELETE, RETRACT})
