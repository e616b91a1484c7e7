"""placeholder"""

from kura.types import Session


def may_see(session: Session, name: str, tenant: str | None) -> bool:
    """placeholder"""
    return tenant is None or tenant == session.tenant_id
