"""Virtual keys without a database: the budget of `sk-tenant-N` is the number at index N in BUDGETS.

For each request, LiteLLM then checks the returned key and reserves money itself, because the setting `custom_auth_run_common_checks` is on.
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
    """Returns LiteLLM's own spend tracker. Without it, no reservation is ever released. LiteLLM itself registers it only with a database."""
    from litellm.proxy.hooks.proxy_track_cost_callback import ProxyDBLogger

    return ProxyDBLogger()


spend = spend_logger()
