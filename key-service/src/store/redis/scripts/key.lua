-- The record of a key in the account's hash. Scripts that read keys begin with this part.

local NEVER = math.huge
-- A sum above 2^53 is `high * CARRY + low`. A limit or a time that is not set is infinite.
local CARRY = 1000000000000000
local KEY = '>ddddddd'

-- A table whose fields are all named here is made at once; fields added later cost as much again.
local function read_key(id, record)
  local limit, high, low, held, expires_at, revoked_at, last_used_at = struct.unpack(KEY, record)
  local used = high * CARRY + low
  return {
    id = id, limit = limit, high = high, low = low, used = used, used_before = used, held = held,
    expires_at = expires_at, revoked_at = revoked_at, last_used_at = last_used_at, changed = false,
  }
end

local function write_key(key)
  return struct.pack(KEY, key.limit, key.high, key.low, key.held, key.expires_at, key.revoked_at, key.last_used_at)
end

