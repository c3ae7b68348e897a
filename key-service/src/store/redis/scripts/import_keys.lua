-- Makes keys that come from another gateway. A key that exists stays as it is.
--
-- KEYS  the account, the account's keys by status: active, expired, revoked; the keys with an expiry; the list of keys, the
--       keys by spend; then of each key: the key, and the keys of its group (the account: no group)
-- ARGV  of each key: its id as bytes, and as text; its record; the field of its opening balance; the number of arguments for
--       its events, and for its texts; ids and events; names and values of texts
local account, list, spenders = KEYS[1], KEYS[6], KEYS[7]
if call('EXISTS', account) == 0 then return false end
local at, name = 1, 8
while ARGV[at] do
  local id, text, record, opening = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local first_text = at + 6 + tonumber(ARGV[at + 4])
  local last = first_text + tonumber(ARGV[at + 5]) - 1
  local texts, group = KEYS[name], KEYS[name + 1]
  if call('EXISTS', texts) == 0 then
    local key = read_key(id, record)
    call('HSET', account, id, record)
    call('HSET', texts, unpack(ARGV, first_text, last))
    call('ZADD', list, '0', text)
    if group ~= account then call('ZADD', group, '0', text) end
    if key.used > 0 then
      call('HSET', account, opening, string.format('%.0f', key.used))
      call('ZADD', spenders, key.used, id)
    end
    list_key(KEYS[2], KEYS[3], KEYS[4], KEYS[5], text, key)
    call('HINCRBY', account, 'keys', '1')
    for n = at + 6, first_text - 1, 2 do append_event(ARGV[n], 'event', ARGV[n + 1]) end
  end
  at, name = last + 1, name + 2
end
return redis.status_reply('OK')
