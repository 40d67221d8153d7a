"""Where things are in an archive. Pure: names to values and back.

    topic=orders/_manifest.json
    topic=orders/partition=0/00000000000000000000-00000000000000001000-60a1c9e2b7d40f38.parquet

A file's name has the start of its checksum: two writers never have one name for other bytes.
`name=value` folders are columns for whatever reads Parquet (Hive's convention), and names that
start with an underscore are skipped by it.
"""

import re

from millstream.base.offsets import OffsetRange

MANIFEST_NAME = "_manifest.json"
LOCK_NAME = "_lock"
FILE_NAME = re.compile(r"(\d{20})-(\d{20})-[0-9a-f]{16}\.parquet")
NAME_CHECKSUM_DIGITS = 16
TOPIC_FOLDER = re.compile(r"topic=([a-zA-Z0-9._-]{1,249})")


def topic_folder(topic: str) -> str:
    return f"topic={topic}"


def topic_from_folder(folder: str) -> str | None:
    match = TOPIC_FOLDER.fullmatch(folder)
    return match[1] if match else None


def manifest_path(topic: str) -> str:
    return f"{topic_folder(topic)}/{MANIFEST_NAME}"


def partition_folder(topic: str, partition: int) -> str:
    return f"{topic_folder(topic)}/partition={partition}"


def file_name(offsets: OffsetRange, sha256: str) -> str:
    return f"{offsets.start:020}-{offsets.end:020}-{sha256[:NAME_CHECKSUM_DIGITS]}.parquet"


def file_path(topic: str, partition: int, offsets: OffsetRange, sha256: str) -> str:
    return f"{partition_folder(topic, partition)}/{file_name(offsets, sha256)}"


def offsets_from_name(name: str) -> OffsetRange | None:
    """None for a name that is none of ours."""
    match = FILE_NAME.fullmatch(name)
    return OffsetRange(start=int(match[1]), end=int(match[2])) if match else None
