"""The evidence adapters, one small file per source. A new one is one file and one line here."""

from proxy.evidence._api import EvidenceAdapter, RawHeaders
from proxy.evidence.envoy import ENVOY
from proxy.evidence.llamacpp import LLAMACPP
from proxy.evidence.ollama_durations import OLLAMA_DURATIONS
from proxy.evidence.openai_headers import OPENAI_HEADERS
from proxy.evidence.server_timing import SERVER_TIMING
from proxy.evidence.vllm_metrics import VLLM_METRICS

ADAPTERS: tuple[EvidenceAdapter, ...] = (
    SERVER_TIMING,
    OPENAI_HEADERS,
    ENVOY,
    LLAMACPP,
    VLLM_METRICS,
    OLLAMA_DURATIONS,
)

__all__ = [
    "ADAPTERS",
    "ENVOY",
    "LLAMACPP",
    "OLLAMA_DURATIONS",
    "OPENAI_HEADERS",
    "SERVER_TIMING",
    "VLLM_METRICS",
    "EvidenceAdapter",
    "RawHeaders",
]
