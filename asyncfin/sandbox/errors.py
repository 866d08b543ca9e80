"""What the sandbox raises towards whoever runs it; what it refuses over HTTP is `request.RefusedError`."""


class SandboxError(Exception):
    """The sandbox cannot do what was asked; the message says what to do."""


class PortInUseError(SandboxError):
    """Something else listens at the sandbox's address."""
