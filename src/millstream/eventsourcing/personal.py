"""Which fields of an event are personal, and whose: marks on its types. Pure.

    @event(subject="user")
    class Registered:
        user: str
        email: Personal[str]
        friend: str
        friends_email: Annotated[str, personal(subject="friend")]

A subject is whom data is about; its id stays readable in the log, so it should say nothing by
itself. Where no field is named, the subject is the id of the stream: "alice" of "Account:alice".
Knows nothing of keys: sealing.py seals what is marked here.
"""

import dataclasses
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, NewType, TypeVar, get_args, get_origin, get_type_hints
from uuid import UUID

from millstream.base.declared import BadDeclaration
from millstream.base.errors import Rejected

T = TypeVar("T")

# An id, not a document: an e-mail address has 254 at most.
SUBJECT_BYTES_MAX: Final = 1_024


@dataclass(frozen=True, slots=True)
class PersonalMark:
    """What `Personal[...]` puts on a type. `subject`: the field that has the subject's id."""

    subject: str | None = None


Personal = Annotated[T, PersonalMark()]


def personal(*, subject: str) -> PersonalMark:
    """For an event about several people: `Annotated[str, personal(subject="friend")]`."""
    return PersonalMark(subject)


class Forgotten:
    """What stands where a value was forgotten: false, the same object everywhere."""

    _only: "Forgotten | None" = None

    def __new__(cls) -> "Forgotten":
        if cls._only is None:
            cls._only = super().__new__(cls)
        return cls._only

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "(forgotten)"

    def __reduce__(self) -> str:
        return "FORGOTTEN"  # copies and pickles are itself


# Of any type, as it stands where a text or a number was: `user.email is FORGOTTEN`.
FORGOTTEN: Final[Any] = Forgotten()


class BadPersonalField(BadDeclaration):
    """A declaration that cannot be kept."""

    def __init__(self, *, event: str, field: str, reason: str) -> None:
        super().__init__(f"event {event}, field {field}: {reason}")
        self.event, self.field, self.reason = event, field, reason


class BadSubject(Rejected):
    def __init__(self, *, reason: str) -> None:
        super().__init__(
            f"a subject is told by a text of 1 to {SUBJECT_BYTES_MAX:,} bytes, a whole number or a "
            f"UUID: {reason}"
        )
        self.reason = reason


@dataclass(frozen=True, slots=True)
class PersonalField:
    """`subject`: the field with the subject's id; None: the stream's id."""

    name: str
    subject: str | None


def personal_fields(event: type, subject: str | None = None) -> tuple[PersonalField, ...]:
    """Of a dataclass. `subject`: the field that has it where a field's mark names none."""
    found = get_type_hints(event, include_extras=True)
    hints = {name: _unnamed(hint) for name, hint in found.items()}
    names = [field.name for field in dataclasses.fields(event)]
    marks = {name: mark for name in names if (mark := mark_of(hints[name])) is not None}
    for name in names:
        inner = get_args(hints[name])[:1] if name in marks else (hints[name],)
        if any(_has_mark(hint, frozenset()) for hint in inner):
            reason = "Personal stands inside of its type: mark the whole field"
            raise BadPersonalField(event=event.__name__, field=name, reason=reason)
    if subject is not None:
        _check_subject(event.__name__, subject, subject, names, marks)
    fields = [PersonalField(name, mark.subject or subject) for name, mark in marks.items()]
    for field in fields:
        if field.subject is not None:
            _check_subject(event.__name__, field.name, field.subject, names, marks)
    return tuple(fields)


def mark_of(hint: Any) -> PersonalMark | None:
    found = [one for one in getattr(hint, "__metadata__", ()) if isinstance(one, PersonalMark)]
    return found[-1] if found else None


def _unnamed(hint: Any) -> Any:
    """What a NewType or an alias stands for: another name for a type is no other type."""
    while (meant := _meant_by(hint)) is not None:
        hint = meant
    return hint


def _meant_by(hint: Any) -> Any:
    if isinstance(hint, NewType):
        return hint.__supertype__
    return hint.__value__ if type(hint).__name__ == "TypeAliasType" else None


def _has_mark(hint: Any, seen: frozenset[Any]) -> bool:
    if mark_of(hint) is not None:
        return True
    return any(_has_mark(part, seen | {hint}) for part in _parts(hint) if part not in seen)


def _parts(hint: Any) -> Iterator[Any]:
    """Types that a type is made of, whichever kind of class it is. What metadata says is no type;
    a class whose own types cannot be told raises NameError or TypeError."""
    if isinstance(hint, TypeVar):
        yield from (hint.__bound__, *hint.__constraints__)
    elif isinstance(hint, type):
        yield from get_type_hints(hint, include_extras=True).values()
        yield from getattr(hint, "__orig_bases__", ())
    elif (meant := _meant_by(hint)) is not None:
        yield meant
    elif hasattr(hint, "__metadata__"):
        yield hint.__origin__
    else:
        yield get_origin(hint)
        yield from (part for part in get_args(hint) if not isinstance(part, str))


def _check_subject(
    event: str, field: str, subject: str, names: list[str], marks: Mapping[str, PersonalMark]
) -> None:
    if subject not in names:
        reason = f"its subject is said to be in field {subject}, which the event does not have"
        raise BadPersonalField(event=event, field=field, reason=reason)
    if subject in marks:
        reason = (
            f"its subject is in field {subject}, which is personal itself: who is to open it would "
            "have to know it. Name the subject by an id that says nothing"
        )
        raise BadPersonalField(event=event, field=field, reason=reason)


def subject_in(field: PersonalField, data: Mapping[str, Any], stream: str) -> str:
    """Whose the field is. A stream's id is what follows the first colon of its name."""
    if field.subject is None:
        return subject_text(stream.partition(":")[2] or stream)
    return subject_text(data.get(field.subject))


def is_about_somebody(field: PersonalField, data: Mapping[str, Any]) -> bool:
    """Not where there is neither a value nor whom it would be about."""
    named = field.subject is None or data.get(field.subject) is not None
    return named or data.get(field.name) is not None


def require_several(subjects: Sequence[str]) -> Sequence[str]:
    """A text is a sequence as well, of letters: "ad" would forget "a" and "d"."""
    if isinstance(subjects, str | bytes):
        raise BadSubject(reason="give a list of subjects, and not one alone")
    return subjects


def subject_text(subject: Any) -> str:
    """One spelling for what looks the same: é is one character or two, and the same person."""
    if isinstance(subject, bool) or not isinstance(subject, str | int | UUID):
        raise BadSubject(reason=f"not by a {type(subject).__name__}")
    text = unicodedata.normalize("NFC", str(subject))
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise BadSubject(reason="not by half a character (a lone surrogate)") from None
    if not 0 < size <= SUBJECT_BYTES_MAX:
        raise BadSubject(reason=f"it has {size:,} bytes")
    return text
