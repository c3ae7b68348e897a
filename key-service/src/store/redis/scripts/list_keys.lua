-- Lists keys by status, and by what was spent.
--
-- KEYS  the account, the keys by status: active, expired, revoked; the keys with an expiry; the keys by spend
-- ARGV  ids of keys, as bytes and as text in turn
for n = 1, #ARGV, 2 do
  local record = call('HGET', KEYS[1], ARGV[n])
  if record then
    local key = read_key(ARGV[n], record)
    list_key(KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[n + 1], key)
    if key.used > 0 then call('ZADD', KEYS[6], key.used, ARGV[n]) end
  end
end
return redis.status_reply('OK')
