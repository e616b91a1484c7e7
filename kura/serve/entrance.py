"""The door of the HTTP application: who a request comes from, whether it may send another one, and what it is told."""

from typing import TYPE_CHECKING

from starlette.requests import Request

from kura.access.credentials import Gate
from kura.errors import CredentialError, KuraError
from kura.types import Principal

if TYPE_CHECKING:
    from kura.serve.limit import RateLimit

PRINCIPAL = "kura.principal"
"""Where an ASGI scope holds who was let in."""


class Entrance:
    """Asked once for every request that wants something.

    Args:
        gate: Who a credential belongs to.
        limit: How many requests each caller may send; None is no limit.
    """

    def __init__(self, gate: Gate, limit: "RateLimit | None" = None) -> None:
        self._gate, self._limit = gate, limit

    async def __call__(self, request: Request) -> Principal:
        """Who sends a request; its scope holds it from then on.

        Raises:
            CredentialError: if the credential is missing or not valid.
            TooManyRequests: if the caller has sent too many.
            KuraError: if it cannot be found out now.
        """
        address = f"address:{request.client.host if request.client else ''}"
        try:
            principal = await self._gate(_authorization(request))
        except KuraError:
            # Those who are not let in are counted too, by where they come from.
            self._count(address)
            raise
        self._count(principal.name or address)
        request.scope[PRINCIPAL] = principal
        return principal

    def _count(self, caller: str) -> None:
        if self._limit is not None:
            self._limit.count(caller)


def _authorization(request: Request) -> str | None:
    """The value of the request's `Authorization` header.

    Raises:
        CredentialError: if there are several, since it is not for us to choose.
    """
    sent = request.headers.getlist("authorization")
    if len(sent) > 1:
        raise CredentialError("more than one Authorization header was sent")
    return sent[0] if sent else None
