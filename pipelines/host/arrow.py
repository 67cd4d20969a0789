"""Arrow's compute functions, which its types do not know: one alias, not a comment at each call."""

from typing import Any

import pyarrow.compute

pc: Any = pyarrow.compute
