"""Row operators in Triton."""

from rowops.softcap import softcap_softmax

__all__ = ["softcap_softmax"]
