"""Virtual keys without a database: `sk-tenant-N` has the budget of the N-th number in BUDGETS.

LiteLLM then runs its own checks and reservations on the returned key, as `custom_auth_run_common_checks` demands.
"""

import os

from litellm.proxy._types import UserAPIKeyAuth, hash_token

BUDGETS = [float(budget) for budget in os.environ["BUDGETS"].split(",")]


async def authenticate(request, api_key: str) -> UserAPIKeyAuth:
    tenant = api_key.removeprefix("sk-tenant-")
    if tenant == api_key or not tenant.isdigit() or int(tenant) >= len(BUDGETS):
        raise PermissionError("unknown key")
    return UserAPIKeyAuth(api_key=api_key, token=hash_token(api_key), key_alias=f"tenant-{tenant}", max_budget=BUDGETS[int(tenant)])


def spend_logger():
    """LiteLLM's own spend tracker. LiteLLM registers it only with a database, but without it no reservation is ever released."""
    from litellm.proxy.hooks.proxy_track_cost_callback import ProxyDBLogger

    return ProxyDBLogger()


spend = spend_logger()
