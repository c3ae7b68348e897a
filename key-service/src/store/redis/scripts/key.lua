-- The records of keys in the account's hash, as `records/keys.rs` has them. Scripts that read keys begin with this part.

local call, pack, read, sub = redis.call, struct.pack, struct.unpack, string.sub

-- A table whose fields are all named here is made at once; fields added later cost as much again.
local function read_key(id, record)
  local limit, high, low, held, expires_at, revoked_at, last_used_at = read(KEY, record)
  local used = high * CARRY + low
  return {
    id = id, limit = limit, high = high, low = low, used = used, used_before = used, held = held,
    expires_at = expires_at, revoked_at = revoked_at, last_used_at = last_used_at, changed = false,
    group = false, bounds = false, -- chain
  }
end

local function write_key(key)
  return pack(KEY, key.limit, key.high, key.low, key.held, key.expires_at, key.revoked_at, key.last_used_at)
end

