"""Settings of the node simulator."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

Seconds = float


class NodesSettings(BaseModel):
    """Delays are seconds of wall time. `port` 0: any free port for the control API."""

    model_config = ConfigDict(frozen=True)

    kubeconfig: Path
    aws_endpoint: str
    region: str = "us-west-2"
    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65535)
    boot_seconds: Seconds = Field(default=2.0, ge=0)
    ready_seconds: Seconds = Field(default=0.5, ge=0)
    device_seconds: Seconds = Field(default=1.0, ge=0)
    """From Ready until device plugins report devices such as GPUs."""
    poll_seconds: Seconds = Field(default=0.25, gt=0)
    """Poll interval for an endpoint without control API."""
    memory_overhead: float = Field(default=0.05, ge=0, lt=1)
    """Fraction of the nominal memory that is not available to the operating system."""
