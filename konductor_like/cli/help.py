"""The commands' help, beside typer's own: examples, hints, and words for names that are no commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from konductor_like.exits import Exit

Function = TypeVar("Function", bound=Callable[..., None])
EXAMPLES: dict[Callable[..., None], tuple[str, ...]] = {}
"""By the command's function, command lines that people can copy; a test parses each of them."""
HINTS: dict[Callable[..., None], str] = {}
"""By the command's function, what to type if its command line is wrong."""
_MEANT: Mapping[str, str] = {
    "breaker": "brake",
    "cordon": "taint",
    "release": "reset",
    "uncordon": "reset",
    "untaint": "reset",
}
"""By a name that is no command, the command that people mean by it."""
REMOVED_COMMANDS: Mapping[str, str] = {
    "ack": "`reset NODE` closes the suspicions of a node that is not tainted",
    "incident replay": "send the file with a bug report; to try other rules, use `backtest --rules`",
}
"""By a command of an earlier version, without the program's name, what to do instead."""
REMOVED_OPTIONS: Mapping[str, str] = {
    "backtest --compare": "run it twice with `-o json`, and `diff` what it prints",
    "backtest --no-cache": "leave it out: there is no cache",
    "scan --lines": "use `-o json`, which prints each line with a fault as soon as it is read",
    **dict.fromkeys(
        ("reset --rule", "reset --gpu"),
        "`reset NODE` releases the whole node, and the taint stays until the last fault is repaired",
    ),
}
"""By a command and its option of an earlier version, such as ``reset --rule``, what to do instead."""


def examples(*lines: str) -> Callable[[Function], Function]:
    """Show these command lines, without the program's name, at the end of the command's help."""

    def with_examples(function: Function) -> Function:
        EXAMPLES[function] = lines
        return function

    return with_examples


def examples_of(callback: Any) -> tuple[str, ...]:
    """Return the examples of a command's function, or of typer's wrapper around it."""
    return EXAMPLES.get(getattr(callback, "__wrapped__", callback), ())


def usage_hint(hint: str) -> Callable[[Function], Function]:
    """Print this hint, too, if the command line is wrong."""

    def with_hint(function: Function) -> Function:
        HINTS[function] = hint
        return function

    return with_hint


def usage_hint_of(callback: Any) -> str:
    """Return the hint of a command's function, or of typer's wrapper around it; empty without one."""
    return HINTS.get(getattr(callback, "__wrapped__", callback), "")


class Command(TyperCommand):
    """A command with its examples at the end of its help; it refuses empty words."""

    status_of_closed_pipe = Exit.OK

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # see options.py
        typed = list(args)
        for word in typed:
            option, command = word.split("=")[0], _path(ctx)
            if instead := REMOVED_OPTIONS.get(f"{command} {option}"):
                ctx.fail(f"{command} has no option {option} in this version; {instead}")
        rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:
            words, *_ = self.make_parser(ctx).parse_args(typed)
            for param in self.params:
                value = words.get(str(param.name))
                given = value if isinstance(value, list | tuple) else [value]
                empty = any(isinstance(word, str) and not word.strip() for word in given)
                if empty and "--reason" not in param.opts:  # a reason may be left empty
                    message = "an empty word; is a shell variable not set?"
                    raise typer.BadParameter(message, ctx=ctx, param=param)  # type: ignore[arg-type]  # as above
        return rest

    def format_epilog(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]  # see options.py
        _write_examples(self, ctx, formatter)

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]  # see options.py
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader of the output has seen enough: `rules list | head`
            raise typer.Exit(self.status_of_closed_pipe) from None


class CommandGroup(TyperGroup):
    """A command that has further commands under its name: ``demo`` and ``demo xid``."""

    def format_epilog(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]  # see options.py
        _write_examples(self, ctx, formatter)


class Group(TyperGroup):
    """Commands under one name. Without a command it prints its help, as kubectl does."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # see options.py
        return super().parse_args(ctx, args if args or ctx.resilient_parsing else ["--help"])

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override]  # see options.py
        removed = f"{_path(ctx)} {args[0]}".strip()
        if instead := REMOVED_COMMANDS.get(removed):
            ctx.fail(f"this version has no command {removed!r}; {instead}")
        meant = _MEANT.get(args[0])
        if meant in self.commands:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {meant!r}?")
        return super().resolve_command(ctx, args)


def _write_examples(command: TyperCommand | TyperGroup, ctx: typer.Context, formatter: Any) -> None:
    program = ctx.find_root().info_name
    if lines := examples_of(command.callback):
        with formatter.section("Examples"):  # not folded, so that they can be copied
            formatter.write("".join(f"{'':>{formatter.current_indent}}{program} {line}\n" for line in lines))


def _path(ctx: typer.Context) -> str:
    """Return the command as it is typed, without the program's name: ``incident save``."""
    return ctx.command_path.removeprefix(ctx.find_root().command_path).strip()
