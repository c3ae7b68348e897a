-- Lists keys by status. Expired keys count as active until `expire_keys.lua` moves them.
--
-- KEYS  the account, the keys by status: active, expired, revoked; the keys with an expiry
-- ARGV  ids of keys, as bytes and as text in turn
for n = 1, #ARGV, 2 do
  local record, id = redis.call('HGET', KEYS[1], ARGV[n]), ARGV[n + 1]
  if record then
    local _, _, _, _, expires_at, revoked_at = struct.unpack('>dddddd', record)
    redis.call('ZREM', KEYS[3], id)
    redis.call('ZREM', KEYS[5], id)
    redis.call('ZREM', revoked_at < math.huge and KEYS[2] or KEYS[4], id)
    redis.call('ZADD', revoked_at < math.huge and KEYS[4] or KEYS[2], '0', id)
    if revoked_at == math.huge and expires_at < math.huge then
      redis.call('ZADD', KEYS[5], string.format('%.0f', expires_at), id)
    end
  end
end
return redis.status_reply('OK')
