"""Reads ``--param`` and ``--option``; suggests corrections for wrong names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from asa.cli.completing import complete_options, complete_params
from asa.core.late import dataclass
from asa.errors import InputError, near
from asa.units import parse_price

ParamsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        help="A parameter of the workflow file, as in width=56; may be repeated.",
        metavar="NAME=VALUE",
        show_default=False,
        autocompletion=complete_params,
    ),
]
OptionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        help="An option of the backend, as in partition=batch; may be repeated.",
        metavar="NAME=VALUE",
        show_default=False,
        autocompletion=complete_options,
    ),
]
FormerSetOption = Annotated[list[str] | None, typer.Option("--set", hidden=True)]
"""The former `--param` and `--option` in one: a parameter if the workflow file has one of this name, else an option."""

_NO_FILE = {".py", ".json", ".smk", ".sh", ".sbatch", ".slurm", ".job"}
"""Suffixes of files that users may take for workflow files."""


def price_given(given: str | None, of_site: str, file: Path | None) -> tuple[str | None, str]:
    """Return the price of time and its source: the user's option, else the site file's price, else None.

    `given`: the argument of `--price`.
    `of_site`: the price in the site file; may be empty.
    """
    if given is not None:
        try:
            parse_price(given)
        except InputError as error:
            raise InputError(error.message, where="--price", hint=error.hint) from None
        return given.strip(), "--price"
    return (of_site, f"site file {file}") if of_site else (None, "")


def is_file(given: str) -> bool:
    """Whether the user's argument means a file, not the name of an installed workflow."""
    return given.endswith(".toml") or ("/" in given and Path(given).suffix not in _NO_FILE)


def unknown_workflow(given: str) -> InputError:
    """Return the error for an argument that names neither a workflow file nor an installed workflow."""
    from asa.core import plugins
    from asa.spec.foreign import foreign_of

    if foreign := foreign_of(Path(given)):
        return InputError(f"is {foreign.what}, not a workflow file", where=given, hint=foreign.hint)
    error = plugins.unknown_name("workflow", given, plugins.names("asa.workflows"))
    hint = "The names of workflow files end in .toml." if Path(given).is_file() else "Or give a .toml file."
    return InputError(error.message, where=error.where, hint=f"{error.hint} {hint}")


def given_settings(settings: Sequence[str] | None, option: str = "--option") -> dict[str, str]:
    """Read settings from a command line.

    Examples
    --------
    >>> given_settings(["partition=batch", "prefix=ssh login"])
    {'partition': 'batch', 'prefix': 'ssh login'}
    """
    given, example = {}, "width=56" if option == "--param" else "partition=batch"
    for setting in settings or []:
        key, sign, value = setting.partition("=")
        if not sign or not key.strip():
            raise InputError(
                "has no name before the =" if sign else f"{key!r} has no value",
                where=option,
                hint=f"Write it as NAME=VALUE, as in {option} {example}.",
            )
        given[key.strip()] = value.strip()
    return given


def given_parameters(parameters: Sequence[str] | None) -> dict[str, str]:
    """Read a workflow file's parameters from a command line."""
    return given_settings(parameters, "--param")


@dataclass(frozen=True, slots=True)
class Given:
    """Settings on a command line: for the workflow file, for the backend, and by `--set`, which may be for either."""

    parameters: Sequence[str] | None = None
    options: Sequence[str] | None = None
    either: Sequence[str] | None = None

    def split(
        self, workflow: str, try_options: Callable[[Mapping[str, str]], object]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Split settings into parameters of the workflow's file and options of the backend.

        `try_options` raises `InputError` for options that the backend does not have.
        """
        from asa.spec import parameters_of

        known = parameters_of(workflow) if is_file(workflow) else {}
        ours, theirs = given_parameters(self.parameters), given_settings(self.options)
        for name, value in ours.items():
            if name not in known:
                raise _no_parameter(workflow, name, value, list(known), try_options)
        for name, value in given_settings(self.either, "--set").items():
            (ours if name in known else theirs).setdefault(name, value)
        return ours, theirs

    def words(self) -> list[str]:
        """Write the settings as on a command line."""
        all_of = (("--param", self.parameters), ("--option", self.options), ("--set", self.either))
        return [word for option, values in all_of for value in values or () for word in (option, value)]


def _no_parameter(
    workflow: str, name: str, value: str, known: list[str], try_options: Callable[[Mapping[str, str]], object]
) -> InputError:
    """Return the error for a parameter that the workflow file does not have, with the likely correction."""
    message = f"{workflow} has no parameter {name!r}"
    if not is_file(workflow):
        message = "only a workflow file has parameters"
    hint = f"{near(name, known)}Known: {', '.join(known)}." if known else "It has no [parameters]."
    if not near(name, known) and _is_option(name, value, try_options):
        hint = f"{name} is an option of the backend: --option {name}={value}"
    elif not is_file(workflow):
        hint = "Leave --param out."
    return InputError(message, where=f"--param {name}", hint=hint)


def _is_option(name: str, value: str, try_options: Callable[[Mapping[str, str]], object]) -> bool:
    try:
        try_options({name: value})
    except InputError as error:
        return "no setting" not in error.message
    return True


@contextmanager
def parameters_meant(workflow: str) -> Iterator[None]:
    """If the backend lacks an option, suggest the workflow file's parameter of a similar name."""
    try:
        yield
    except InputError as error:
        from asa.spec import near_parameter, parameters_of

        key = (error.where or "").rpartition(" ")[2]
        if not is_file(workflow) or "no setting" not in error.message:
            raise
        if key in parameters_of(workflow):
            hint = f"{key} is a parameter of {workflow}: --param {key}=VALUE"
        elif name := near_parameter(workflow, key):
            hint = f"{workflow} has a parameter {name!r}: --param {name}=VALUE. {error.hint or ''}".strip()
        else:
            raise
        raise type(error)(error.message, where=error.where, hint=hint) from error
