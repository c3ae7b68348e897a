-- Compares, then writes everything or nothing. It makes no other decision.
--
-- KEYS: names of sets (hashes), indexes (sorted sets) and logs (streams). ARGV: the plan, the revisions of all guards
-- as seen (zeros for an absent record), then words. The plan, in bytes: two for the number of reads; for each its key
-- and two bytes for the number of its guards, whose fields are the next words; then commands: its number, its key, two
-- bytes for the number of its words. Reads and commands are short enough for `unpack`, which fails above 8,000 words.
local call, sub = redis.call, string.sub
local plan, seen, at, word, place = { string.byte(ARGV[1], 1, -1) }, ARGV[2], 3, 2, 0
local COMMANDS = { 'XADD', 'HDEL', 'UNLINK', 'ZREM', 'HSET', 'ZADD', 'XTRIM' }
local XADD = 1
-- Commands that fail if the name has another type, by the number of the writing command.
local LOOKS = { [2] = 'HLEN', [4] = 'ZCARD', [5] = 'HLEN', [6] = 'ZCARD', [7] = 'XLEN' }
local ABSENT = '\0\0\0\0\0\0\0\0'

-- Guards that do not hold: position, and the current record (false if absent).
local stale = {}
for _ = 1, plan[1] * 256 + plan[2] do
  local guards = plan[at + 1] * 256 + plan[at + 2]
  local found = call('HMGET', KEYS[plan[at]], unpack(ARGV, word + 1, word + guards))
  for n = 1, guards do
    local record = found[n]
    if (record and sub(record, 1, 8) or ABSENT) ~= sub(seen, 8 * place + 1, 8 * place + 8) then
      stale[#stale + 1] = place + 1
      stale[#stale + 1] = record
    end
    place = place + 1
  end
  at, word = at + 3, word + guards
end
if #stale > 0 then return stale end

-- Redis has no rollback, so everything that may fail is checked before the first write: permissions, types, and numbers
-- that a log already has. The first XADD checks its own number and type.
local words_before, appends, code_before, key_before = word, 0, nil, nil
for at = at, #plan, 4 do
  local code, key = plan[at], KEYS[plan[at + 1]]
  if code ~= code_before or key ~= key_before then
    if not redis.acl_check_cmd(COMMANDS[code], key, key, key, key) then
      return redis.error_reply('NOPERM the user of this connection may not run ' .. COMMANDS[code])
    end
    if LOOKS[code] then call(LOOKS[code], key) end
  end
  if code == XADD then appends = appends + 1 end
  if code == XADD and appends > 1 then
    local last, number = call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1], string.match(ARGV[words_before + 4], '^%d+')
    if last and tonumber(string.match(last[1], '^%d+')) >= tonumber(number) then
      return redis.error_reply('NUMBER ' .. number .. ' is one that ' .. key .. ' has had')
    end
  end
  words_before, code_before, key_before = words_before + plan[at + 2] * 256 + plan[at + 3], code, key
end

for at = at, #plan, 4 do
  local words = plan[at + 2] * 256 + plan[at + 3]
  call(COMMANDS[plan[at]], KEYS[plan[at + 1]], unpack(ARGV, word + 1, word + words))
  word = word + words
end
return 0
