-- Reads entries of an account's journal.
--
-- KEYS  the account's records, journal and archive
-- ARGV  the number to start behind, the most entries to read
--
-- Answers the number up to which entries are gone, then number, generation and record (empty: it is lost) of each entry.
local answer = { redis.call('HGET', KEYS[3], 'until') or '0' }
local entries = redis.call('ZRANGE', KEYS[2], '(' .. ARGV[1], '+inf', 'BYSCORE', 'LIMIT', '0', ARGV[2], 'WITHSCORES')
local generations = {}
for at = 1, #entries, 2 do generations[#generations + 1] = entries[at] end
if #generations == 0 then return answer end
for n, record in ipairs(redis.call('HMGET', KEYS[1], unpack(generations))) do
  answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = entries[2 * n], generations[n], record or ''
end
return answer
