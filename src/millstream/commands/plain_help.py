"""Help that shows arguments as people write them: `TOPIC...`, not `{TOPIC}...` or `<list[str]>`."""

from typing import Any

from typer.core import TyperCommand


def argument_usage(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    many = f"{name}..." if argument.nargs == -1 else name
    return many if argument.required else f"[{many}]"


class PlainCommand(TyperCommand):
    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", *map(argument_usage, self._parameters("argument"))]

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
