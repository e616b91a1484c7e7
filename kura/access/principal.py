"""From who is calling to what one call may see."""

from kura.errors import Forbidden, MissingScope
from kura.types import Principal, Scope, Session


def open_session(principal: Principal, tenant_id: str | None, user_id: str | None) -> Session:
    """Open the session of one call.

    A call may repeat what its principal says, never change it. Where the principal leaves a value open, the call's
    own one is taken only if the principal is believed.

    Args:
        principal: Who the transport says is calling.
        tenant_id: What the call itself gives as its tenant; None where it gives nothing.
        user_id: The same for the user.

    Raises:
        Forbidden: if the call gives another value than the principal's.
    """
    return Session(
        tenant_id=_settle("tenant_id", principal.tenant, tenant_id, believed=principal.believed),
        user_id=_settle("user_id", principal.user, user_id, believed=principal.believed),
        databases=principal.databases,
        scopes=principal.scopes,
    )


def require(session: Session, scope: Scope) -> None:
    """Check that the caller's credential is good for something.

    Raises:
        MissingScope: if it is not.
    """
    if scope not in session.scopes:
        raise MissingScope(scope)


def may_see(session: Session, name: str, tenant: str | None) -> bool:
    """Whether a session sees the database `name` that belongs to `tenant` (None: to nobody).

    A caller who may not see a database is answered as if it did not exist.
    """
    if session.databases is not None and name not in session.databases:
        return False
    return tenant is None or tenant == session.tenant_id


def _settle(name: str, fixed: str | None, given: str | None, *, believed: bool) -> str | None:
    if given is None or given == fixed:
        return fixed
    if fixed is None and believed:
        return given
    # The same words whether the principal has another value or none: the answer tells nothing about it.
    raise Forbidden(f"\"{name}\" comes from the caller's credential or the server's start; leave it out")
