"""Paths of the server, taken out of texts that clients get. Pure, but for the roots' names."""

import os
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

IN_PLACE_OF_A_PATH: Final = "(a path of the server)"
# A path ends where a text goes on: at a space, a quote, a bracket, or what separates sentences.
REST: Final = r"(?:/[^\s'\"`,;:()\[\]{}<>]*)"
# Not within a word, an address, or a longer path.
BEFORE: Final = r"(?<![\w.\-/:])"
# Between quotes it goes on to the other one, as the system writes names with spaces.
QUOTE: Final = "['\"`]"
IN_QUOTES: Final = r"[^'\"`\n]*"
# Which names all files, or none: the rest of a path tells which one is meant.
NAMELESS: Final = frozenset({"", ".", "..", "/"})
PLAIN_WORD: Final = re.compile(r"[\w-]+")
CODE_DIRECTORY: Final = re.compile(r"(?<=\(at )/(?:[^:()\n]*/)?(?=[^/:()\n]+:\d+\))")


def without_code_directories(text: str) -> str:
    """Where code is said to be, by its file's name and line: "(at shop.py:53)"."""
    return CODE_DIRECTORY.sub("", text)


def without_paths(text: str, patterns: Iterable[re.Pattern[str]]) -> str:
    for pattern in patterns:
        text = pattern.sub(IN_PLACE_OF_A_PATH, text)
    return text


@lru_cache(maxsize=8)
def private_paths(folders: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    """Of these folders, as errors may write them, and of all that this machine has in its root."""
    return path_patterns(folders, roots=tuple(os.listdir("/")))


def path_patterns(folders: Iterable[str], roots: Iterable[str]) -> tuple[re.Pattern[str], ...]:
    wanted = sorted(set(folders) - NAMELESS, key=len, reverse=True)
    any_root = "|".join(re.escape(one) for one in sorted(roots, key=len, reverse=True))
    quoted = rf"(?<={QUOTE})(?:file:/*)?/(?:{any_root})/{IN_QUOTES}(?={QUOTE})"
    return (
        re.compile(quoted),
        *map(_of_folder, wanted),
        re.compile(rf"(?:file:/*|{BEFORE})/(?:{any_root}){REST}+"),
    )


def _of_folder(folder: str) -> re.Pattern[str]:
    """`data` is a word, too: only what is in it can be told from that."""
    is_plain_word = PLAIN_WORD.fullmatch(folder) is not None
    return re.compile(
        rf"(?:file:/*|{BEFORE}){re.escape(folder)}{REST}{'+' if is_plain_word else '*'}"
    )
