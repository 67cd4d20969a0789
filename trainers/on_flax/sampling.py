"""How generated text is drawn: settings. Standard library only."""

from dataclasses import dataclass

from schemas.errors import UsageError


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    Attributes:
      max_new_tokens: T.
      temperature: of the softmax; 0 takes the likeliest token.
      top_k: only so many likeliest tokens are drawn from; 0 draws from all.
      top_p: only the likeliest tokens that together have this probability; 1 draws from all.
      eos_ids: that end a text; the one that came is part of it.
    """

    max_new_tokens: int = 64
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    eos_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuses what cannot be meant."""
        if self.max_new_tokens < 1:
            raise UsageError(f"--max_new_tokens={self.max_new_tokens}: must be at least 1")
        if self.temperature < 0:
            raise UsageError(f"--temperature={self.temperature}: at least 0, which is greedy")
        if self.top_k < 0:
            raise UsageError(f"--top_k={self.top_k}: at least 0, which draws from all tokens")
        if not 0 < self.top_p <= 1:
            raise UsageError(f"--top_p={self.top_p}: a share above 0, at most 1")
