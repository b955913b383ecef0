"""Files of trained agents, and of unfinished training: arrays of numbers and a header in JSON, without code.

They are NumPy's ``.npz``, read without pickles. Arrays are not compressed, and their declared sizes are checked before
any is read: a file cannot take more memory than it has bytes.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tokenize import TokenError  # of numpy, if brackets in an array's header do not close
from typing import Annotated, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from asa.core.documents import open_file, read_json
from asa.core.files import in_words, replacing
from asa.errors import StateError

from .agents import Actor
from .network import Floats, Kind, NetworkSize
from .patient import PATIENCE, WINDOW, Patient
from .ranking import COLUMNS, RankJudge, rank_arrays
from .rewards import Cost, Reward
from .scheduler import Chooser, OneLevel, TwoLevels
from .state import SCALE_S

_FORMAT: Final = "asa dras"
_VERSION: Final = 1
_HEADER: Final = "header"
_LONGEST_HEADER: Final = 1 << 24
_DAMAGED: Final = "It was changed or cut off: take another copy, or train anew."


@dataclass(frozen=True)
class Agent:
    """A trained network, and its purpose."""

    shape: NetworkSize
    parameters: Mapping[str, Floats]
    scale_s: int = SCALE_S  # scale of times in its input
    levels: Literal[1, 2] = 2  # 2 for DRAS; 1 for an agent that never reserves, like Decima-PG
    reward: str = ""  # description of its reward
    command: str = ""  # command or description of its training, for repeating it
    # from which jobs, in words, and how many days from a log's beginning these are, including those used for selection;
    # 0 for a model's
    source: str = ""
    seen_days: int = 0
    seen: str = ""  # digest of the jobs of these days, which identifies the log under any name; "" if unknown
    # weight, while it learned, of a reward one choice later; None if unknown, as in files of version 0.2.0
    discount: float | None = None

    @property
    def name(self) -> str:
        """Its name in comparisons."""
        return f"dras-{self.shape.kind}" if self.levels == 2 else f"decima-{self.shape.kind}"

    def scheduler(
        self, *, sample: bool = False, seed: int = 0, reward: Reward | None = None, chooser: Chooser | None = None
    ) -> OneLevel | TwoLevels:
        """Make a scheduler with this agent, which does not learn; or with a chooser in its place, such as a learner."""
        chooser = chooser or Actor(self.shape, self.parameters, scale_s=self.scale_s, sample=sample, seed=seed)
        return (TwoLevels if self.levels == 2 else OneLevel)(chooser, window=self.shape.window, reward=reward)


@dataclass(frozen=True)
class Ranked:
    """A trained judge: an agent for machines of any size (`asa.backends.dras.ranking`)."""

    parameters: Mapping[str, Floats]
    patience: float = PATIENCE
    window: int = WINDOW
    usual_s: int = 0
    cost: str = ""  # description of its cost
    command: str = ""
    source: str = ""
    seen_days: int = 0
    seen: str = ""

    @property
    def name(self) -> str:
        """Its name in comparisons."""
        return "dras-ppo"

    def scheduler(self, *, cost: Cost | None = None) -> Patient:
        """Make a scheduler with this judge, which does not learn."""
        judge = RankJudge(self.parameters)
        return Patient(judge, patience=self.patience, window=self.window, usual_s=self.usual_s, cost=cost)


_Size = Annotated[int, Field(strict=True, ge=1, le=1 << 31)]


class _Header(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    content: Literal["agent"]
    kind: Kind
    nodes: _Size
    window: _Size
    hidden: tuple[_Size, _Size]
    scale_s: _Size
    levels: Literal[1, 2]
    reward: str
    discount: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    command: str
    source: str = ""
    seen_days: int = Field(default=0, ge=0)
    seen: str = ""


class _RankedHeader(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    content: Literal["judge"]
    columns: tuple[str, ...]
    patience: float = Field(ge=0, allow_inf_nan=False)
    window: _Size
    usual_s: int = Field(ge=0)
    cost: str
    command: str
    source: str
    seen_days: int = Field(ge=0)
    seen: str = ""


def save_agent(agent: Agent | Ranked, path: str | Path) -> None:
    """Write an agent to a file, which is replaced as a whole."""
    facts = {name: value for name, value in vars(agent).items() if name not in ("shape", "parameters")}
    header: _Header | _RankedHeader
    if isinstance(agent, Ranked):
        header = _RankedHeader(content="judge", columns=COLUMNS, **facts)
    else:
        header = _Header(content="agent", **asdict(agent.shape), **facts)
    write_file(path, header.model_dump(), agent.parameters)


def load_agent(path: str | Path, *, nodes: int | None = None) -> Agent | Ranked:
    """Read an agent from a file that `save_agent` wrote.

    `nodes`: of its machine; any if not given. An agent of `ranking` is for all sizes.
    Raises `StateError`: the file cannot be read, is damaged, of another version, or its agent is for a machine of
    another size.
    """
    header, arrays = read_file(path)
    if header.get("content") == "judge":
        return _judge(path, header, arrays)
    if header.get("content") != "agent":
        raise StateError("is no trained agent", where=str(path), hint="Training writes agents as best.npz.")
    try:
        parsed = _Header.model_validate(header)
        shape = NetworkSize(parsed.kind, parsed.nodes, parsed.window, parsed.hidden)
    except (ValidationError, ValueError) as error:
        raise StateError(f"has a header that makes no sense: {error}", where=str(path), hint=_DAMAGED) from error
    if nodes is not None and shape.nodes != nodes:
        raise StateError(
            f"was trained for {shape.nodes} nodes, and there are {nodes}",
            where=str(path),
            hint=f"Take an agent that was trained for {nodes} nodes, or train one.",
        )
    _check(path, arrays, shape.arrays)
    known = parsed.model_dump(exclude={"content", "kind", "nodes", "window", "hidden"})
    return Agent(shape, arrays, **known)


def shipped() -> Ranked:
    """Load the agent that comes with the package, trained on the built-in workload model."""
    agent = load_agent(Path(__file__).with_name("agent.npz"))
    assert isinstance(agent, Ranked)
    return agent


def _judge(path: str | Path, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Ranked:
    try:
        parsed = _RankedHeader.model_validate(header)
    except ValidationError as error:
        raise StateError(f"has a header that makes no sense: {error}", where=str(path), hint=_DAMAGED) from error
    if parsed.columns != COLUMNS:
        raise StateError(
            "was trained to look at jobs in another way", where=str(path), hint="Train anew with this version."
        )
    _check(path, arrays, rank_arrays())
    return Ranked(arrays, **parsed.model_dump(exclude={"content", "columns"}))


def _check(path: str | Path, arrays: Mapping[str, NDArray[Any]], wanted: Mapping[str, tuple[int, ...]]) -> None:
    sizes = {name: array.shape for name, array in arrays.items() if array.dtype == np.float32}
    if sizes != wanted or not all(np.isfinite(array).all() for array in arrays.values()):
        raise StateError("holds other numbers than its header says", where=str(path), hint=_DAMAGED)


def write_file(path: str | Path, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays and a header for JSON to a file, which is replaced as a whole."""
    file = Path(path)
    text = json.dumps({"format": _FORMAT, "version": _VERSION, **header})
    with in_words("cannot be written", file, "Name another file.", StateError), replacing(file) as stream:
        np.savez(stream, **{_HEADER: np.frombuffer(text.encode(), dtype=np.uint8)}, **arrays)  # type: ignore[arg-type]


def read_file(path: str | Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read a file of `write_file`."""
    file = str(path)
    try:
        with open_file(path) as opened, zipfile.ZipFile(opened) as archive:
            sizes = {info.filename: info.file_size for info in archive.infolist() if _is_plain(info)}
            if len(sizes) < len(archive.infolist()) or sizes.get(f"{_HEADER}.npy", _LONGEST_HEADER) >= _LONGEST_HEADER:
                raise StateError("is no file of an agent", where=file, hint=_DAMAGED)
            header = read_json(_array(archive, f"{_HEADER}.npy").tobytes())
            if not isinstance(header, dict) or header.pop("format", None) != _FORMAT:
                raise StateError("is no file of an agent", where=file, hint="Give one that training wrote.")
            version = header.pop("version", None)
            if version != _VERSION:
                raise StateError(
                    f"is of version {version}, and this program reads {_VERSION}",
                    where=file,
                    hint="Upgrade asa-client, or train anew.",
                )
            names = [name for name in sizes if name != f"{_HEADER}.npy"]
            return header, {name.removesuffix(".npy"): _array(archive, name) for name in names}
    except OSError as error:
        raise StateError(f"cannot be read: {error.strerror}", where=file, hint="Check the path.") from error
    except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError, RuntimeError, TokenError) as error:
        raise StateError(f"is no file of an agent: {error}", where=file, hint=_DAMAGED) from error


def _is_plain(info: zipfile.ZipInfo) -> bool:
    return info.compress_type == zipfile.ZIP_STORED and info.compress_size == info.file_size


def _array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """Read an array; its header must declare numbers, and agree with its actual size."""
    data = archive.read(name)
    stream = io.BytesIO(data)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError(f"{name} is of another format")
    shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.kind not in "fui" or math.prod(shape) * dtype.itemsize != len(data) - stream.tell():
        raise ValueError(f"{name} is not what it says")
    stream.seek(0)
    array: NDArray[Any] = np.load(stream, allow_pickle=False)
    array.flags.writeable = False
    return array
