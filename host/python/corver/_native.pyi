from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, final

from ._types import Baseline, Grade, Sentence

__version__: str

class CorverError(Exception): ...
class SettingsError(CorverError): ...

@final
class Score:
    @property
    def reward(self) -> float: ...
    @property
    def returns(self) -> list[float] | None: ...
    @property
    def advantage_signs(self) -> list[int] | None: ...
    @property
    def question(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def judge(self) -> Grade: ...
    @property
    def format(self) -> Grade: ...
    @property
    def alignment_rate(self) -> float: ...
    @property
    def fallback(self) -> bool: ...
    @property
    def return_parts(self) -> dict[str, float]: ...
    @property
    def sentences(self) -> list[Sentence]: ...
    def to_dict(self) -> dict[str, Any]: ...

@final
class Scorer:
    def __new__(
        cls,
        plugin: str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
        index: str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
        extractor: str | PathLike[str] | None = None,
        *,
        judge: str | PathLike[str] | None = None,
        format: str | PathLike[str] | None = None,
        config: str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Scorer: ...
    def score(
        self,
        completions: Sequence[str] | None = None,
        questions: Sequence[str] | None = None,
        answers: Sequence[Sequence[str] | str | None] | None = None,
        *,
        titles: Sequence[str | None] | None = None,
        evidence: Sequence[Sequence[str] | str | None] | None = None,
        completion_ids: Sequence[Sequence[int]] | None = None,
        tokenizer: Any = None,
    ) -> list[Score]: ...
    @property
    def rule(self) -> str: ...

def advantages(
    returns: Sequence[Sequence[float]],
    group_size: int,
    *,
    signs: Sequence[Sequence[int]] | None = None,
    scale_rewards: str = "group",
    min_spread: float = 0.0,
) -> list[list[float]]: ...
def group_baselines(
    rewards: Sequence[float], group_size: int, scale_rewards: str = "group", min_spread: float = 0.0
) -> list[Baseline]: ...
def parse_golds(json: str) -> list[str]: ...
def extract_response(query: str, prompt: str) -> str: ...
def last_user_turn(prompt: str) -> str: ...
def decode_with_spans(
    completion_ids: Sequence[Sequence[int]], tokenizer: Any
) -> list[tuple[str, list[tuple[int, int] | None]]]: ...
def unpack_demo() -> tuple[Path, Path, list[tuple[str, list[str]]], list[tuple[str, list[str]]]]: ...
def set_host_program(path: str) -> None: ...
