"""Help that shows arguments as people write them: `TOPIC...`, not `{TOPIC}...` or `<list[str]>`.

An example is one line, however long: it is to be copied.
"""

from typing import Any

from typer.core import TyperCommand

EXAMPLE = "Example: "


def example_in(text: str) -> tuple[str, str]:
    """A command's help without its example, and the example; empty if there is none."""
    before, _, example = text.partition(f"\n\n{EXAMPLE}")
    return before, example.strip()


def argument_usage(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    many = f"{name}..." if argument.nargs == -1 else name
    return many if argument.required else f"[{many}]"


class PlainCommand(TyperCommand):
    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", *map(argument_usage, self._parameters("argument"))]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        text, example = example_in(self.help or "")
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(text)
            if example:
                formatter.write(f"\n{'':>{formatter.current_indent}}{EXAMPLE}{example}\n")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        arguments = self._parameters("argument")
        options = [one.get_help_record(ctx) for one in self.get_params(ctx) if one not in arguments]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl([(argument_usage(one), one.help or "") for one in arguments])
        with formatter.section("Options"):
            formatter.write_dl([record for record in options if record])

    def _parameters(self, kind: str) -> list[Any]:
        return [one for one in self.params if one.param_type_name == kind]
