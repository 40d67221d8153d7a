"""Which ALTER TABLE leaves the values of old rows as they are."""

import pytest

from millstream.capture.mariadb.alterations import Alteration, alteration_of

KEEPS = Alteration(keeps_values=True)


@pytest.mark.parametrize(
    "clauses",
    [
        "ADD INDEX (amount)",
        "ADD UNIQUE KEY by_item (item, amount)",
        "ADD FULLTEXT (item)",
        "ADD CONSTRAINT `a,b` FOREIGN KEY (a) REFERENCES other (id)",
        "ADD CONSTRAINT FOREIGN KEY (a) REFERENCES other (id)",
        "ADD CHECK (amount > 0)",
        "DROP INDEX by_item",
        "DROP COLUMN amount",
        "drop `amount`",
        "DROP amount, DROP IF EXISTS item",
        "DROP FOREIGN KEY fk",
        "RENAME INDEX a TO b",
        "ALTER COLUMN amount SET DEFAULT 5",
        "ALTER amount DROP DEFAULT",
        "COMMENT = 'ADD x INT NOT NULL, MODIFY y'",
        "AUTO_INCREMENT = 1000 COMMENT='x'",
        "ENGINE=InnoDB, ALGORITHM=INPLACE, LOCK=NONE",
        "DROP CHECK few, DROP CONSTRAINT many",
        "DROP CONSTRAINT IF EXISTS `primary one`",
        "ALTER CHECK few NOT ENFORCED",
        "ALTER CONSTRAINT few ENFORCED",
        "DEFAULT CHARACTER SET = utf8mb4 COLLATE = utf8mb4_bin",
        "CHARSET latin1, COMMENT = 'x'",
        "ENCRYPTED=YES ENCRYPTION_KEY_ID=2",
        "COMPRESSION='zlib'",
        "TRANSACTIONAL=1",
        "ANALYZE PARTITION ALL",
        "OPTIMIZE PARTITION p0",
        "DISABLE KEYS",
        "FORCE",
    ],
)
def test_what_changes_no_value_loads_nothing(clauses: str) -> None:
    assert alteration_of(f"ALTER TABLE shop.orders {clauses}") == KEEPS


@pytest.mark.parametrize(
    ("clauses", "added"),
    [
        ("ADD COLUMN note INT", {"note"}),
        ("ADD note VARCHAR(20) DEFAULT NULL AFTER item, ADD INDEX (note)", {"note"}),
        ("ADD IF NOT EXISTS `my ``odd`` one` DECIMAL(10,2) NULL FIRST", {"my `odd` one"}),
        ("ADD COLUMN `index` INT, ADD b INT COMMENT 'NOT NULL'", {"index", "b"}),
        ("ADD partition_of INT", {"partition_of"}),
        ("DROP COLUMN note, ADD COLUMN note INT", {"note"}),
    ],
)
def test_columns_that_are_null_in_old_rows_are_named(clauses: str, added: set[str]) -> None:
    found = alteration_of(f"alter online table if exists `orders` {clauses}")
    assert found == Alteration(keeps_values=True, added=frozenset(added))


@pytest.mark.parametrize(
    "clauses",
    [
        "DROP CONSTRAINT PRIMARY",
        "DROP CONSTRAINT `PRIMARY`",
        "CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        "DEFAULT CHARACTER SET utf8mb4, CONVERT TO CHARACTER SET utf8mb4",
        "REPAIR PARTITION ALL",
        "ANALYZE PARTITION p0, TRUNCATE PARTITION p1",
        "ADD COLUMN item2 TEXT CHARACTER SET latin1 DEFAULT 'x'",
        "ADD COLUMN note INT DEFAULT 5",
        "ADD COLUMN note INT NOT NULL",
        "ADD COLUMN (note INT, other INT)",
        "ADD COLUMN twice INT AS (amount * 2) VIRTUAL",
        "ADD COLUMN twice INT GENERATED ALWAYS AS (amount * 2) STORED",
        "ADD COLUMN number INT AUTO_INCREMENT UNIQUE",
        "ADD COLUMN number SERIAL",
        "ADD COLUMN at TIMESTAMP",
        "ADD INDEX (amount), MODIFY amount BIGINT",
        "MODIFY amount INT NOT NULL",
        "MODIFY twice INT AS (amount * 3) VIRTUAL",
        "CHANGE amount pieces INT",
        "RENAME COLUMN amount TO pieces",
        "RENAME TO old_orders",
        "CONVERT TO CHARACTER SET utf8mb4",
        "DROP PRIMARY KEY",
        "DROP PRIMARY KEY, ADD PRIMARY KEY (item)",
        "ADD PRIMARY KEY (item)",
        "ADD CONSTRAINT p PRIMARY KEY (item)",
        "DROP PARTITION p1",
        "EXCHANGE PARTITION p1 WITH TABLE t",
        "ADD PARTITION (PARTITION p2 VALUES LESS THAN (10))",
        "import tablespace",
        "ADD SYSTEM VERSIONING",
        "DROP SYSTEM VERSIONING",
        "ENGINE=BLACKHOLE",
        "COMMENT='x' ENGINE=BLACKHOLE",
        "ORDER BY amount",
        "SOMETHING NEW",
    ],
)
def test_whatever_else_loads_the_table_again(clauses: str) -> None:
    assert not alteration_of(f"ALTER TABLE orders {clauses}").keeps_values


@pytest.mark.parametrize(
    "statement", ["ALTER IGNORE TABLE orders ADD UNIQUE (item)", "RENAME TABLE orders TO old"]
)
def test_a_statement_that_may_delete_rows_loads_the_table_again(statement: str) -> None:
    assert not alteration_of(statement).keeps_values
