"""How much text a member may say."""

from millstream.broker.groups.said_text import CHARACTERS_MAX, fault_of_length


def test_texts_are_counted_together_up_to_the_limit() -> None:
    half = "h" * (CHARACTERS_MAX // 2)
    assert fault_of_length("the topics", [half, half]) is None
    assert fault_of_length("the topics", [half, half, "1"]) == (
        f"the topics have {CHARACTERS_MAX + 1} characters, at most {CHARACTERS_MAX} are allowed"
    )
