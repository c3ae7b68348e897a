-- Lists of keys. Scripts that change keys begin with this part, after `key`.

-- Lists a key by status: an expired key as active, until `expire_keys.lua` moves it.
local function list_key(active, expired, revoked, expiring, id, key)
  local list, other = active, revoked
  if key.revoked_at < NEVER then list, other = revoked, active end
  for _, name in ipairs({ other, expired, expiring }) do call('ZREM', name, id) end
  call('ZADD', list, '0', id)
  if list == active and key.expires_at < NEVER then
    call('ZADD', expiring, string.format('%.0f', key.expires_at), id)
  end
end

