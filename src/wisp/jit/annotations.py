"""Type names that annotated programs import from here."""

from typing import Dict, List, Optional, Tuple, Union  # noqa: F401, UP035

BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = List  # noqa: UP006
