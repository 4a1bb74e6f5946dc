"""What a skill is made of."""

from dataclasses import dataclass, field
from typing import Callable


@dataclass
class SkillTool:
    name: str
    run: Callable[[dict], str]


@dataclass
class SkillDefinition:
    tools: list = field(default_factory=list)
